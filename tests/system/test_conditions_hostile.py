"""Conditions of runs under what goes wrong: texts in pieces, frozen supervisors, functions."""

import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from agentctl_protocol.vocabulary import Reason, Result
from agentctl_supervisor import RunSpec, Supervisor
from agentctl_supervisor.client import Client
from agentctl_supervisor.conditions import ExternalTermination, FunctionalTermination
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AgentctlHome, new_marker
from agentctl_testkit.cli import Foregrounds, freeze

STREAMS = """
import time
from agentctl_child import run

def main():
    for source, pieces in run.input:
        for piece in pieces:
            run.emit_text(piece, source=source)
            run.flush()
    print("said", flush=True)
    time.sleep(60)
"""


@pytest.fixture
async def supervisor(home: AgentctlHome) -> AsyncIterator[Supervisor]:
    async with Supervisor.open(Home.open({"AGENTCTL_HOME": str(home.root)}, create=True)) as opened:
        yield opened


@pytest.fixture
def streams(tmp_path: Path) -> str:
    path = tmp_path / "streams.py"
    path.write_text(STREAMS)
    return f"{path}:main"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ([["critic", ["all is well: TER", "MIN", "ATE", " now"]]], True),
        ([["critic", list("TERMINATE")]], True),
        ([["critic", ["TERMI"]], ["writer", ["NATE"]]], False),
        ([["writer", ["TERMINATE"]]], False),
    ],
    ids=["in pieces", "in letters", "of two agents", "of another agent"],
)
async def test_a_text_in_pieces_is_one_text(
    supervisor: Supervisor, streams: str, said: list[object], *, found: bool
) -> None:
    """Each piece in a frame of its own; those of two agents are no text together."""
    condition = 'text("TERMINATE", source="critic")'
    run = await supervisor.start(RunSpec(target=streams, input=said, stop_when=condition))
    with trio.fail_after(20):
        async for record in run.events():
            if "said" in repr(record.body):
                break
        if not found:
            await run.kill()
        report = await run.wait()
    assert report.result is (Result.TERMINATED if found else Result.STOPPED)
    assert bool(report.conditions) == found


async def test_what_is_written_to_stdout_is_nobodys_text(
    supervisor: Supervisor, streams: str
) -> None:
    """A tool may print what it likes."""
    run = await supervisor.start(RunSpec(target=streams, input=[], stop_when='text("said")'))
    with trio.fail_after(20):
        async for record in run.events():
            if "said" in repr(record.body):
                break
        report = await run.kill()
    assert (report.result, report.conditions) == (Result.STOPPED, ())


async def test_a_signal_before_the_start_counts_from_the_start(
    supervisor: Supervisor, streams: str
) -> None:
    """Who is quicker than the launch is not told that there is no such condition."""
    run = await supervisor.start(RunSpec(target=streams, input=[]), stop_when=ExternalTermination())
    assert run.signal()
    with trio.fail_after(20):
        report = await run.wait()
    assert (report.result, report.reason) == (Result.TERMINATED, Reason.CONDITION)
    assert [fired.sentence for fired in report.conditions] == ["External termination requested"]
    other = await supervisor.start(RunSpec(target=streams, input=[], stop_when="time('1h')"))
    assert not other.signal()
    await other.kill()


@pytest.mark.parametrize("command", ["none", "stop"])
def test_a_frozen_supervisor_judges_when_it_comes_back(
    home: AgentctlHome, streams: str, command: str
) -> None:
    """The condition that was met meanwhile ends the run; a stop from outside came before it."""
    with Foregrounds(home, new_marker()) as outside:
        process = outside.start(
            *("--name", "x", "--input", "[]", "--stop-when", 'time("700ms")', streams)
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"said\n"
        freeze(process)
        if command == "stop":
            assert home.run("stop", "--grace", "0", "--term-grace", "0", "x").code == 0
        time.sleep(1)  # it is the passing of time that the condition waits for
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=20)
        shown = home.run("show", "x", "-o", "json").json()
    assert shown["result"] == ("stopped" if command == "stop" else "terminated")
    assert [fired["sentence"] for fired in shown["conditions"]] == (
        [] if command == "stop" else ["Timeout of 0.7 seconds reached"]
    )


class NoOrdinaryError(BaseException):
    """As AutoGen's `TerminatedException` is."""


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), NoOrdinaryError("twice")])
async def test_a_function_that_raises_what_is_no_exception_ends_its_run_only(
    supervisor: Supervisor, streams: str, error: BaseException
) -> None:
    """The supervisor and its other runs go on."""

    def raises(_: object) -> bool:
        raise error

    other = await supervisor.start(RunSpec(target=streams, input=[]))
    run = await supervisor.start(
        RunSpec(target=streams, input=[["a", ["b"]]]), stop_when=FunctionalTermination(raises)
    )
    with trio.fail_after(20):
        report = await run.wait()
    assert report.result is Result.TERMINATED
    assert f"could not be judged: {type(error).__name__}: " in report.detail
    assert not other.report.finished
    await other.kill()


EMBEDDER = """
import sys, time, trio
from agentctl_supervisor import RunSpec, Supervisor
from agentctl_supervisor.conditions import FunctionalTermination
from agentctl_supervisor.run import limit_watch

limit_watch.FUNCTION_WITHIN_S = 0.3

async def main():
    # Were it one of these, the log could not be synced while it hangs.
    trio.to_thread.current_default_thread_limiter().total_tokens = 1
    async with Supervisor.open() as supervisor:
        run = await supervisor.start(
            RunSpec(target=sys.argv[1], input=[["a", ["b"]]]),
            stop_when=FunctionalTermination(lambda _: time.sleep(600)),
        )
        report = await run.wait(durable=True)
    print(report.result, report.detail, sep="; ")

trio.run(main)
"""


def test_a_function_that_hangs_is_left_behind_and_holds_up_nothing(
    home: AgentctlHome, streams: str
) -> None:
    """Its run ends at the deadline, and the program that embeds us ends although it still hangs."""
    done = subprocess.run(
        [sys.executable, "-c", EMBEDDER, streams],
        env=home.environment,
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    said = done.stdout.decode()
    assert said.startswith("terminated; ")
    assert "could not be judged: no answer in 0.3 s" in said


async def test_a_signal_to_a_run_that_is_being_stopped_is_too_late(
    supervisor: Supervisor, streams: str
) -> None:
    """The first intent is kept, whatever fires later."""
    run = await supervisor.start(
        RunSpec(target=streams, input=[], stop_when="external()", grace_s=1)
    )
    await run.wait_started()
    run.request_stop(detail="enough")
    await trio.to_thread.run_sync(_signal_quietly, supervisor, run.id)
    with trio.fail_after(20):
        report = await run.wait()
    assert (report.result, report.conditions) == (Result.STOPPED, ())


def _signal_quietly(supervisor: Supervisor, run_id: str) -> None:
    from agentctl_supervisor.errors import AgentctlError

    try:
        Client(supervisor.home.root).signal(run_id)
    except AgentctlError:
        pass  # it may be over by now
