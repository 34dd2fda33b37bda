"""One run, one outcome: whatever comes at the same time, the order of the log decides."""

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from agentctl_protocol.messages import Ask, ErrorMessage, Events, Ready, ResultMessage
from agentctl_protocol.records import Exit, RecordBody, Stop, VerdictRecord, Waiting
from agentctl_protocol.report import Actor, Report
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Containment, Reason, Result, Rung
from agentctl_supervisor import Supervisor
from agentctl_supervisor.client import Client, StopOutcome
from agentctl_supervisor.gate.gate import Gate
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AGENTS, AgentctlHome, Hostile, RollCall
from agentctl_testkit.matrix import (
    CONTAINMENT_VARIABLE,
    CONTAINMENTS,
    PROGRAMS,
    Cast,
    SupervisorThread,
    assert_all_up,
    assert_nothing_left,
    bodies,
    in_foreground,
    ladder_of,
    the_stop,
)

ROUNDS = 50
"""In each of two modes and two containments."""
HOG = Cast(Hostile("gil_hog", 1, ("native",)), ())
LONG_S = 120.0


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[Supervisor]:
    home = Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)
    async with Supervisor.open(home) as supervisor:
        yield supervisor


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[SupervisorThread]:
    with SupervisorThread(tmp_path / "home") as thread:
        yield thread


def _directory(supervisor: Supervisor, run: Run) -> Path:
    return supervisor.home.runs_path / run.id


# --- completion against stop ----------------------------------------------


async def _prompt_program(supervisor: Supervisor) -> Run:
    """A program that exits with 5 as soon as its input ends, and is just waiting for that."""
    waiting = trio.Event()

    async def heard(_stream: str, _data: bytes) -> None:
        waiting.set()

    run = await supervisor.start(
        RunSpec(argv=("/bin/sh", "-c", "echo up; read line; exit 5"), stdin=True),
        on_output=heard,
    )
    await waiting.wait()
    return run


async def _prompt_function(supervisor: Supervisor) -> Run:
    """A function that returns as soon as its input ends, and is just waiting for that."""
    run = await supervisor.start(RunSpec(target=f"{AGENTS}/polite_sync.py:echo"))
    async with contextlib.aclosing(run.events()) as records:
        async for record in records:
            match record.body:
                case Ready():
                    await run.send_input("x")
                case Events():
                    return run
    raise AssertionError(f"it was to echo: {run.report}")


async def _end_by_itself(run: Run) -> None:
    if run.stdin is not None:
        await run.stdin.aclose()
    else:
        run.end_input()


def _first_decisive(records: list[RecordBody], *, function: bool) -> RecordBody:
    complete = (ResultMessage, ErrorMessage) if function else (Exit,)
    return next(body for body in records if isinstance(body, (Stop, *complete)))


@pytest.mark.parametrize("mode", ["program", "function"])
@pytest.mark.parametrize("containment", CONTAINMENTS, ids=str)
async def test_completion_races_a_stop(
    supervisor: Supervisor,
    mode: str,
    containment: Containment,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever is first in the log has won, in the report too; a value that comes late is kept."""
    monkeypatch.setenv(CONTAINMENT_VARIABLE, containment)
    start = _prompt_program if mode == "program" else _prompt_function
    outcomes = []
    lead_s = 0.004
    for _ in range(ROUNDS):
        run = await start(supervisor)
        await _end_by_itself(run)
        await trio.sleep(lead_s)  # the instant is the experiment: it hunts the moment of the tie
        run.request_stop()
        report = await run.wait(durable=True)

        records = bodies(_directory(supervisor, run))
        assert sum(isinstance(body, Stop) for body in records) <= 1
        decisive = _first_decisive(records, function=mode == "function")
        stopped = isinstance(decisive, Stop)
        if stopped:
            assert (report.result, report.reason) == (Result.STOPPED, Reason.CLIENT)
        elif mode == "program":
            assert (report.result, report.exit_code) == (Result.FAILED, 5)
        else:
            assert report.result is Result.SUCCEEDED
        if any(isinstance(body, ResultMessage) for body in records):
            assert report.value == ["x"]
        assert Client(supervisor.home.root).show(run.id) == report
        outcomes.append(stopped)
        lead_s = min(0.1, lead_s * 1.3) if stopped else lead_s / 1.3
    assert {True, False} == set(outcomes), "there was no race"


# --- more than one stop ---------------------------------------------------


@pytest.mark.parametrize("containment", CONTAINMENTS, ids=str)
@pytest.mark.parametrize(
    ("first_s", "second_s"), [(LONG_S, 0.1), (0.3, LONG_S)], ids=["shortens", "never-lengthens"]
)
async def test_a_second_stop(
    supervisor: Supervisor,
    containment: Containment,
    first_s: float,
    second_s: float,
    marker: str,
    roll_call: RollCall,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The shorter of two graces counts; the stop record stays the first one's."""
    monkeypatch.setenv(CONTAINMENT_VARIABLE, containment)
    run = await supervisor.start(HOG.spec(marker, roll_call))
    await trio.to_thread.run_sync(assert_all_up, HOG, marker, roll_call, run.id)

    run.request_stop(grace_s=first_s, term_grace_s=first_s, detail="first")
    run.request_stop(grace_s=second_s, term_grace_s=second_s, detail="second")
    with trio.fail_after(LONG_S / 4):
        report = await run.wait()

    assert_nothing_left(marker, roll_call, run.id)
    assert [step for step, _ in ladder_of(report)] == [Rung.ASKED, Rung.SIGTERM, Rung.SIGKILL]
    stop = the_stop(_directory(supervisor, run))
    assert (stop.term_grace_s, stop.detail) == (first_s, "first")


@pytest.mark.parametrize("containment", CONTAINMENTS, ids=str)
def test_fifty_threads_stop_one_run(
    thread: SupervisorThread,
    containment: Containment,
    marker: str,
    roll_call: RollCall,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There is one stop record, and all get one answer."""
    monkeypatch.setenv(CONTAINMENT_VARIABLE, containment)
    run = thread.call(thread.supervisor.start, HOG.spec(marker, roll_call))
    assert_all_up(HOG, marker, roll_call, run.id)
    client = Client(thread.home)
    all_ready = threading.Barrier(50)
    outcomes: list[StopOutcome] = []

    def stop() -> None:
        all_ready.wait()
        outcomes.append(client.stop(run.id))

    threads = [threading.Thread(target=stop) for _ in range(50)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert_nothing_left(marker, roll_call, run.id)
    assert len(outcomes) == 50
    assert all(outcome.gone for outcome in outcomes)
    assert all(outcome.report == outcomes[0].report for outcome in outcomes)
    assert the_stop(thread.home / "runs" / run.id).reason is Reason.USER


def test_a_finished_run_is_not_stopped_again(thread: SupervisorThread) -> None:
    """A stop and a kill of it are no errors, and nothing is written."""
    run = thread.call(thread.supervisor.start, RunSpec(argv=("/bin/sh", "-c", "exit 3")))
    report = thread.call(run.wait, durable=True)
    before = bodies(thread.home / "runs" / run.id)

    for end in (Client(thread.home).stop, Client(thread.home).kill):
        outcome = end(run.id)
        assert (outcome.already, outcome.gone, outcome.report) == (True, True, report)
    assert thread.call(run.stop) == report

    assert (report.result, report.exit_code) == (Result.FAILED, 3)
    assert bodies(thread.home / "runs" / run.id) == before


@pytest.mark.parametrize("containment", CONTAINMENTS, ids=str)
def test_a_supervisor_that_wakes_up_finds_one_stop(
    containment: Containment, marker: str, roll_call: RollCall, home: AgentctlHome
) -> None:
    """Stopped from outside, woken, and stopped again at once: one stop record, one outcome."""
    cast = next(cast for cast in PROGRAMS if cast.agent.name == "six_roles")
    client = Client(home.root)
    with in_foreground(home, cast, marker, roll_call, containment) as supervisor:
        others = supervisor.and_its_spawner
        supervisor.freeze()
        first = client.stop("cell", reason="first")
        assert_nothing_left(marker, roll_call, but=others)

        supervisor.thaw()
        again = client.kill("cell", reason="second")
        supervisor.process.wait(20)

    assert first.gone
    assert again.gone
    stop = the_stop(supervisor.directory)
    assert (stop.detail, stop.intent, stop.kill) == ("first", True, False)
    report = client.show("cell")
    assert (report.result, report.reason) == (Result.STOPPED, Reason.USER)
    assert again.report == report
    assert supervisor.process.returncode == report.process_exit_code


async def test_no_grant_follows_a_stop_that_was_decided_while_it_was_judged(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor that freezes between its verdict and the record of it looks for an intent."""
    theirs = Stop(Result.STOPPED, Reason.USER, "theirs", Actor("uid", "0"), 0.0, 0.0)
    judge = Gate.judge

    def judge_and_freeze(gate: Gate, ask: Ask, tokens: int = 0) -> VerdictRecord | Waiting:
        verdict = judge(gate, ask, tokens)
        (directory,) = supervisor.home.runs()
        if directory.write_intent(theirs):
            time.sleep(0.5)  # nothing of this supervisor moves: it is frozen
        return verdict

    monkeypatch.setattr(Gate, "judge", judge_and_freeze)
    run = await supervisor.start(RunSpec(target=f"{AGENTS}/polite_sync.py:main"))
    report = await run.wait()

    records = bodies(_directory(supervisor, run))
    stop = records.index(the_stop(_directory(supervisor, run)))
    verdicts = [body for body in records[stop:] if isinstance(body, VerdictRecord)]
    assert verdicts
    assert {verdict.verdict for verdict in verdicts} == {"refused"}
    assert report.result is Result.STOPPED
    assert report.calls == ()


# --- exit codes -----------------------------------------------------------


async def test_every_exit_code(supervisor: Supervisor) -> None:
    """Each of the 256 is the program's own, in the report and as what `agentctl run` exits with."""
    reports: dict[int, Report] = {}
    at_once = trio.CapacityLimiter(8)

    async def exit_with(code: int) -> None:
        async with at_once:
            run = await supervisor.start(RunSpec(argv=("/bin/sh", "-c", f"exit {code}")))
            reports[code] = await run.wait()

    async with trio.open_nursery() as nursery:
        for code in range(256):
            nursery.start_soon(exit_with, code)

    assert {code: report.exit_code for code, report in reports.items()} == {
        code: code for code in range(256)
    }
    assert {code: report.process_exit_code for code, report in reports.items()} == {
        code: code for code in range(256)
    }
    assert [code for code, report in reports.items() if report.result is Result.SUCCEEDED] == [0]
    others = {(report.result, report.reason) for code, report in reports.items() if code}
    assert others == {(Result.FAILED, Reason.EXIT)}


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 0", 0),
        ("exit 1", 1),
        ("exit 2", 2),
        ("exit 125", 125),
        ("exit 255", 255),
        ("kill -KILL $$", 137),
        ("kill -TERM $$", 143),
        ("kill -SEGV $$", 139),
    ],
)
@pytest.mark.parametrize("containment", CONTAINMENTS, ids=str)
def test_the_command_exits_as_its_program_did(
    home: AgentctlHome, containment: Containment, script: str, code: int
) -> None:
    """Its own code, or 128 and the signal's number."""
    done = home.run(
        *("run", "-q", "--", "/bin/sh", "-c", script),
        environment={CONTAINMENT_VARIABLE: containment},
    )
    assert done.code == code, done
    (report,) = Client(home.root).runs(finished=True)
    assert report.result is (Result.FAILED if code else Result.SUCCEEDED)
