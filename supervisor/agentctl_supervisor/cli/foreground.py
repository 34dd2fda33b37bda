"""``agentctl run`` while the run lives: a supervisor for one run, at a terminal."""

import os
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Final

import msgspec
import trio

from agentctl_protocol.report import Actor, Report
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Reason, Result
from agentctl_supervisor import Supervisor
from agentctl_supervisor.cli import standard_io, terminal
from agentctl_supervisor.cli.narration import Narrator
from agentctl_supervisor.cli.wording import called, summary
from agentctl_supervisor.errors import AgentctlError
from agentctl_supervisor.run import Run
from agentctl_supervisor.spawner_start import StartedSpawner

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(spec: RunSpec, spawner: StartedSpawner, *, quiet: bool, as_json: bool) -> int:
    """Runs *spec* to its end and returns the exit code for it.

    *as_json*: stdout gets the report and nothing else; what the run writes to its
    stdout goes to our stderr.
    """
    try:
        report = trio.run(_supervise, spec, spawner, quiet, as_json)
    except BaseExceptionGroup as group:
        raise _first(group) from None
    _tell(spec, report, quiet=quiet, as_json=as_json)
    return report.process_exit_code


async def _supervise(spec: RunSpec, spawner: StartedSpawner, quiet: bool, as_json: bool) -> Report:
    # Open before anything is started: a signal that comes meanwhile waits for its run.
    with trio.open_signal_receiver(*_SIGNALS) as signals:
        async with (
            Supervisor.open(subreaper=True, spawner=spawner) as supervisor,
            trio.open_nursery() as nursery,
        ):
            output = standard_io.Output(stdout_fd=2 if as_json else 1)
            live = await supervisor.start(spec, on_output=output.write)
            output.on_closed = live.close_output
            nursery.start_soon(_obey, signals, live, output, nursery)
            nursery.start_soon(_narrate, live, spec.name or live.id, quiet)
            if live.stdin is not None:
                nursery.start_soon(standard_io.pump_input, live.stdin)
            report = await live.wait(durable=True)
            await live.wait_delivered()
            nursery.cancel_scope.cancel()
    return report


async def _obey(
    signals: AsyncIterator[int], live: Run, output: standard_io.Output, nursery: trio.Nursery
) -> None:
    """Ctrl-C stops the run, a second one kills it; SIGTERM and SIGHUP stop it since we must go."""
    interrupted = False
    async for number in signals:
        if number == signal.SIGINT:
            live.request_stop(
                reason=Reason.USER,
                detail="Ctrl-C" if not interrupted else "Ctrl-C, twice",
                actor=Actor("terminal", _terminal()),
                kill=interrupted,
            )
            interrupted = True
        else:
            live.request_stop(
                reason=Reason.SUPERVISOR_EXIT,
                detail=f"agentctl run got {signal.Signals(number).name}",
                actor=Actor("supervisor", f"pid {os.getpid()}"),
            )
        nursery.start_soon(_let_go, live, output)


async def _let_go(live: Run, output: standard_io.Output) -> None:
    """Whoever wants us to leave does not want us to wait for a reader of our output."""
    await live.wait()
    output.abandon()


async def _narrate(live: Run, name: str, quiet: bool) -> None:
    narrator = Narrator(name, quiet=quiet)
    with live.listen() as steps:
        async for step in steps:
            narrator(step)


def _tell(spec: RunSpec, report: Report, *, quiet: bool, as_json: bool) -> None:
    if as_json:
        terminal.out_json(report)
    elif spec.target is not None and report.value is not None:
        # None is what a function without a return statement returns: nothing to tell.
        terminal.out(msgspec.json.encode(report.value).decode())
    show = f"agentctl show {called(report)}"
    if report.result is Result.REFUSED:
        terminal.say(f"error: {terminal.plain(report.detail or 'the run was refused')}")
        terminal.say(f"hint: {show}")
    elif report.result is not Result.SUCCEEDED and not quiet:
        terminal.say(f"agentctl: {summary(report, datetime.now(UTC))}; {show}")


def _terminal() -> str:
    try:
        return os.ttyname(2)
    except OSError:
        return f"uid {os.getuid()}"


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error of *group* that says most to a person."""
    leaves: list[BaseException] = []
    queue: list[BaseException] = [group]
    while queue:
        error = queue.pop()
        if isinstance(error, BaseExceptionGroup):
            queue.extend(error.exceptions)
        else:
            leaves.append(error)
    if os.environ.get("AGENTCTL_DEBUG"):
        return group
    # What is unexpected comes first: an expected error beside it may be its consequence.
    return min(leaves, key=lambda error: isinstance(error, AgentctlError))
