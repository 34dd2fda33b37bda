"""Runs ``agentctl run`` in the foreground: a supervisor for one run, at a console."""

import math
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Final

import trio

from agentctl_protocol.messages import Ask
from agentctl_protocol.records import Waiting
from agentctl_protocol.report import Actor, Report
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.values import NIL
from agentctl_protocol.vocabulary import EXIT_OK, EXIT_OWN_FAILURE, Reason, Result
from agentctl_supervisor import Supervisor
from agentctl_supervisor.cli.terminal import console, standard_io
from agentctl_supervisor.cli.terminal.live_view import LiveView
from agentctl_supervisor.cli.terminal.stop_signals import STOP_SIGNALS, release
from agentctl_supervisor.cli.wording import (
    failure_hints,
    fresh_workspace,
    unseen_variables,
    waiting_calls,
    workspace_words,
)
from agentctl_supervisor.cli.wording.narration import Narrator
from agentctl_supervisor.cli.wording.phrases import called, summary
from agentctl_supervisor.errors import AgentctlError
from agentctl_supervisor.event_loop.readiness import check_epoll
from agentctl_supervisor.event_loop.worker_threads import run_sync, worker_threads
from agentctl_supervisor.report.call_history import open_or_note
from agentctl_supervisor.report.reconcile import MAX_WAITING_ARGS
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.spawner.start import StartedSpawner
from agentctl_supervisor.text.json_text import json_line, json_page

_COLOURS: Final = {
    Result.SUCCEEDED: "green",
    Result.TERMINATED: "green",
    Result.STOPPED: "yellow",
}
_HIDE_WITHIN_S: Final = 0.1
_LAST_WORDS_S: Final = 1.0
"""The seconds that a slow reader of our output still has after somebody asked us to end."""
_SHOWN_ARGUMENTS: Final = 200


def run(spec: RunSpec, spawner: StartedSpawner, *, quiet: bool, as_json: bool) -> int:
    """Run *spec* to its end with *spawner*, and return the exit code.

    *as_json*: stdout gets only the report; what the run writes to its stdout goes to our stderr.
    """
    check_epoll()
    try:
        report, output_lost = trio.run(_supervise, spec, spawner, quiet, as_json)
    except BaseExceptionGroup as group:
        raise _first(group) from None
    # If output was lost, fail as other programs do.
    return report.process_exit_code or (EXIT_OWN_FAILURE if output_lost else EXIT_OK)


async def _supervise(
    spec: RunSpec, spawner: StartedSpawner, quiet: bool, as_json: bool
) -> tuple[Report, bool]:
    # Opened before anything is started: a signal that comes meanwhile is kept for the run.
    with (
        trio.open_signal_receiver(*_heeded()) as signals,
        # Output: two writers.  Input: one reader.  View: one thread that measures, and one that
        # looks at the remaining processes.
        worker_threads(output=2, input=int(spec.stdin), view=2),
    ):
        release()
        output = standard_io.Output(stdout_to_stderr=as_json)
        async with (
            Supervisor.open(subreaper=True, spawner=spawner) as supervisor,
            trio.open_nursery() as nursery,
        ):
            live = await supervisor.start(spec, on_output=output.write, output_pipes=output.pipes)
            output.on_closed = live.close_output
            told = trio.Event()
            if quiet:
                told.set()
            else:
                # Start this before signals are handled: the steps of a stop must be printed.
                await nursery.start(_tell_progress, spec, live, output, nursery, told)
                if spec.approve:
                    nursery.start_soon(_tell_waiting, live, output)
            nursery.start_soon(_obey, signals, live, output, nursery, told)
            if not quiet:
                # Only now: if nobody reads stderr, this blocks, and signals must work then.
                with output.until_abandoned():
                    for line in fresh_workspace.lines_about(spec, live.brief_report):
                        await output.say(line)
                    for line in unseen_variables.lines_about(spec, live.brief_report):
                        await output.say(line)
            if live.stdin is not None:
                nursery.start_soon(standard_io.pump_input, live.stdin)
            report = await live.wait(durable=True)
            await live.wait_delivered()
            with output.until_abandoned():
                await told.wait()
            nursery.cancel_scope.cancel()
            hints = failure_hints.hints(report, live.stderr or live.stdout, spec.unprotect)
        await _tell_end(spec, report, output, hints=hints, quiet=quiet, as_json=as_json)
    return report, output.lost


def _heeded() -> list[signal.Signals]:
    """Return our stop signals, without those that the caller ignores, as nohup(1) does SIGHUP.

    SIGTERM is always included.
    """
    return [
        number
        for number in STOP_SIGNALS
        if number is signal.SIGTERM or signal.getsignal(number) is not signal.SIG_IGN
    ]


async def _obey(
    signals: AsyncIterator[int],
    live: Run,
    output: standard_io.Output,
    nursery: trio.Nursery,
    told: trio.Event,
) -> None:
    """Stop the run on Ctrl-C; kill it on a second Ctrl-C or SIGQUIT.

    SIGTERM and SIGHUP stop it too, because our process must end.
    """
    interrupted = False
    async for number in signals:
        if number in (signal.SIGINT, signal.SIGQUIT):
            at_once = number == signal.SIGQUIT
            live.request_stop(
                reason=Reason.USER,
                detail="Ctrl-\\" if at_once else "Ctrl-C, twice" if interrupted else "Ctrl-C",
                actor=Actor("terminal", _terminal()),
                kill=interrupted or at_once,
            )
            interrupted = True
        else:
            live.request_stop(
                reason=Reason.SUPERVISOR_EXIT,
                detail=f"agentctl run got {signal.Signals(number).name}",
                actor=Actor("supervisor", f"pid {os.getpid()}"),
            )
        nursery.start_soon(_let_go, live, output, told)


async def _let_go(live: Run, output: standard_io.Output, told: trio.Event) -> None:
    """Wait for the end of the run, then only briefly for slow readers of our output.

    A user who wants us to end does not want us to wait for a reader that does not read.
    """
    await live.wait()
    with trio.move_on_after(_LAST_WORDS_S):
        await live.wait_delivered()
        await told.wait()
    output.abandon()


async def _tell_progress(
    spec: RunSpec,
    live: Run,
    output: standard_io.Output,
    nursery: trio.Nursery,
    told: trio.Event,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """Print the steps of a stop as they happen; at a terminal, also show the resource use.

    *told* is set when all steps, until the end of the run, have been printed.  The task counts as
    started when it listens to the steps.
    """
    narrator = Narrator(spec.name or live.id)
    view = LiveView(live, narrator, spec.time_s)
    # If the user types to the run, the terminal belongs to the run.
    if output.has_status and not (spec.stdin and os.isatty(0)):
        nursery.start_soon(view.measure)
        nursery.start_soon(view.keep, output.status)
        nursery.start_soon(_give_way, output)
    with live.listen() as steps:
        task_status.started()
        async for step in steps:
            now = time.monotonic()
            if step.step is not None:
                await run_sync("view", view.onlooker.glance, step.processes)
            commands = view.onlooker.commands_of(step.processes)
            if lines := narrator.lines(step, now, commands):
                await output.say("\n".join(lines))
    told.set()


async def _tell_waiting(live: Run, output: standard_io.Output) -> None:
    """Print each call that waits for approval, and the commands that decide on it."""
    name = called(live.brief_report)
    asked = Ask("-", "tool", "-")
    async for record in live.events():
        match record.body:
            case Ask() as asked:
                pass
            case Waiting() as waiting:
                # The `Ask` record comes right before this record.  It is missing if the log had no
                # more room for records of the agent.
                args = asked.args if asked.call == waiting.call else NIL
                value = open_or_note(args if len(args) <= MAX_WAITING_ARGS else None, "", [])
                shown = console.plain(
                    waiting_calls.told(waiting.name, value, longest=_SHOWN_ARGUMENTS)
                )
                decide_by = waiting_calls.decide_by(name, waiting.number, waiting.call)
                await output.say(f"agentctl: waits for approval: {shown}\n  {decide_by}")


async def _give_way(output: standard_io.Output) -> None:
    """Remove our status line on Ctrl-Z, then suspend our process; the run goes on meanwhile."""
    with trio.open_signal_receiver(signal.SIGTSTP) as signals:
        async for number in signals:
            with trio.move_on_after(_HIDE_WITHIN_S):
                await output.status("")
            ours = signal.signal(number, signal.SIG_DFL)
            # Not SIGSTOP: the kernel discards SIGTSTP if no parent could continue us (an orphaned
            # process group).
            signal.raise_signal(number)
            signal.signal(number, ours)


async def _tell_end(
    spec: RunSpec,
    report: Report,
    output: standard_io.Output,
    *,
    hints: list[str],
    quiet: bool,
    as_json: bool,
) -> None:
    with trio.move_on_after(_LAST_WORDS_S if output.abandoned else math.inf):
        await output.restore()
        if as_json:
            await output.out(json_page(report))
        elif spec.target is not None and report.value is not None:
            # A function without a return statement returns None: there is nothing to print.
            await output.out(json_line(report.value))
        if report.result is Result.REFUSED or not quiet:
            for line in _last_words(report, at_terminal=output.has_status):
                await output.say(line)
        if not quiet:
            for told in (*workspace_words.hints(report), *hints):
                await output.say(console.labelled("hint", told))


def _last_words(report: Report, *, at_terminal: bool) -> Iterator[str]:
    show = f"agentctl show {called(report)}"
    if report.result is Result.REFUSED:
        yield console.labelled("error", report.detail or "the run was refused")
        yield console.labelled("hint", show)
        return
    words = summary(report, datetime.now(UTC))
    if not at_terminal:
        # At a terminal, the end is always reported; elsewhere only if the run did not succeed.
        if report.result is not Result.SUCCEEDED:
            yield f"agentctl: {words}; {show}"
        return
    colour = _COLOURS.get(report.result or Result.LOST, "red")
    label = console.coloured("agentctl:", colour)
    if len(f"agentctl: {words}; {show}") < console.screen_columns(2):
        yield f"{label} {words}; {show}"
    else:
        yield f"{label} {words}"
        yield f"  {show}"


def _terminal() -> str:
    try:
        return os.ttyname(2)
    except OSError:
        return f"uid {os.getuid()}"


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the most informative error of *group*."""
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
    # Unexpected errors come first: an expected error may be the consequence of an unexpected one.
    return min(leaves, key=lambda error: isinstance(error, AgentctlError))
