"""Stopping a run whose supervisor is frozen or dead."""

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from agentctl_protocol.records import Answered, ContainedRecord, End, Exit, Record, RungRecord, Stop
from agentctl_protocol.report import Actor, Processes
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import By, Containment, Reason, Result, Rung, State
from agentctl_supervisor.outside_stop import (
    KILL_SIGNAL,
    TERMINATE_SIGNAL,
    Grip,
    Move,
    plan,
    told,
)
from agentctl_supervisor.processes.process_tree import identity_of, wait_dead
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.reconcile import Fold
from agentctl_testkit import AgentctlHome, is_alive, wait_until_gone
from agentctl_testkit_cli import SLEEPER, STUBBORN, Foregrounds, freeze
from agentctl_testkit_clock import Stopwatch

_STOP = Stop(
    result=Result.STOPPED,
    reason=Reason.USER,
    detail="",
    actor=Actor("uid", "0 (root)"),
    grace_s=0.0,
    term_grace_s=2.0,
)
_IDENTITY = ProcessIdentity(1, 1)


def _contained(containment: Containment, cgroup: str = "") -> ContainedRecord:
    return ContainedRecord(_IDENTITY, _IDENTITY, containment, None, cgroup)


def test_the_ladder_begins_at_sigterm() -> None:
    """The channel is the frozen supervisor's, so that nobody can ask."""
    moves = plan(_contained(Containment.PID_NAMESPACE), _STOP)
    assert moves[0] == Move(Rung.SIGTERM, TERMINATE_SIGNAL, 2.0)
    assert [move.rung for move in moves] == [Rung.SIGTERM, Rung.SIGKILL]


@pytest.mark.parametrize("containment", list(Containment))
@pytest.mark.parametrize("cgroup", ["", "/sys/fs/cgroup/x"])
def test_a_kill_uses_all_that_holds_the_run(containment: Containment, cgroup: str) -> None:
    """Init's end takes a namespace with it; without one the warden must be there to sweep."""
    (move,) = plan(
        _contained(containment, cgroup),
        Stop(_STOP.result, _STOP.reason, "", _STOP.actor, 0.0, 2.0, kill=True),
    )
    assert (move.rung, move.warden) == (Rung.SIGKILL, KILL_SIGNAL)
    assert move.root == (containment is Containment.PID_NAMESPACE)
    assert move.cgroup == bool(cgroup)


def test_what_the_log_had_decided_stays_decided() -> None:
    """A run that had ended by itself is not said to have been stopped."""
    fold = Fold("r-abcdefgh", RunSpec(argv=("x",)))
    fold.apply(Record(1, 10**9, By.SUPERVISOR, Exit(code=3)))
    report = told(fold, [(2 * 10**9, _STOP), (3 * 10**9, End(processes=Processes(seen=1)))])
    assert (report.result, report.reason, report.state) == (
        *(Result.FAILED, Reason.EXIT, State.FINISHED),
    )


def test_what_is_told_has_the_rungs_that_were_seen() -> None:
    """The log ends with the freezing; the person still gets the evidence."""
    fold = Fold("r-abcdefgh", RunSpec(argv=("x",)))
    report = told(
        fold,
        [
            (10**9, _STOP),
            (10**9, RungRecord(step=Rung.SIGKILL, processes=2)),
            (2 * 10**9, Answered(step=Rung.SIGKILL, how="yes")),
            (2 * 10**9, End(processes=Processes(seen=2, killed=2))),
        ],
    )
    assert (report.result, report.processes.seen) == (Result.STOPPED, 2)
    assert [(step.step, step.answered) for step in report.ladder] == [(Rung.SIGKILL, "yes")]


def test_waiting_for_processes_ends_with_the_last_of_them() -> None:
    """Or with the time."""
    process = subprocess.Popen(["sleep", "60"])
    pidfd = os.pidfd_open(process.pid)
    try:
        assert not wait_dead([pidfd], 0.05)
        process.kill()
        assert wait_dead([pidfd], 10)
        assert wait_dead([], 0)
    finally:
        process.wait()
        os.close(pidfd)


def test_a_process_without_its_keepers_is_killed_too(marker: str) -> None:
    """A warden that was killed has swept nothing: what says that it is of the run is ended."""
    environment = {**os.environ, "AGENTCTL_RUN_ID": "r-abcdefgh"}
    with subprocess.Popen(["sleep", "60"], env=environment) as orphan:
        contained = ContainedRecord(_IDENTITY, _IDENTITY, Containment.SUBREAPER)
        with Grip("r-abcdefgh", contained, ()) as grip:
            seen = grip.climb(plan(contained, _STOP), lambda _: None)
        assert orphan.wait(5) == -signal.SIGKILL
    *_, (_, end) = seen
    assert isinstance(end, End)
    assert end.survivors == ()
    assert [body.how for _, body in seen if isinstance(body, Answered)] == ["no", "yes"]


@pytest.mark.parametrize("is_there", [True, False])
def test_nobody_to_be_seen_proves_nothing_while_a_warden_sweeps(is_there: bool) -> None:
    """A process that hops from parent to parent is missed by a look; the warden's end is proof."""
    ignoring = ["python3", "-c", _IGNORES_ALL]
    with subprocess.Popen(ignoring, stdout=subprocess.PIPE) as warden:
        assert warden.stdout is not None
        assert warden.stdout.readline() == b"up\n"
        identity = identity_of(warden.pid)
        assert identity is not None
        contained = ContainedRecord(identity, _IDENTITY, Containment.SUBREAPER)
        if not is_there:
            warden.kill()
            warden.wait()
        with Grip("r-abcdefgh", contained, ()) as grip:
            moves = [Move(Rung.SIGKILL, KILL_SIGNAL, 0.2)]
            *_, (_, end) = grip.climb(moves, lambda _: None)
        warden.kill()
    assert isinstance(end, End)
    assert [left.pid for left in end.survivors] == ([warden.pid] if is_there else [])


_IGNORES_ALL = "import signal as s; s.signal(s.SIGUSR2, s.SIG_IGN); print('up', flush=1); s.pause()"


@pytest.fixture
def runs(home: AgentctlHome, marker: str) -> Iterator[Foregrounds]:
    """Runs of this test."""
    with Foregrounds(home, marker) as foregrounds:
        yield foregrounds


@pytest.fixture(params=["pid-namespace", "subreaper"])
def frozen(runs: Foregrounds, request: pytest.FixtureRequest) -> "subprocess.Popen[bytes]":
    """A supervisor that is stopped while its run goes on."""
    process = runs.up(
        "trap '' TERM; sleep 60 & echo up; while :; do sleep 0.1; done",
        *("--name", "demo", "--term-grace", "300ms"),
        environment={"AGENTCTL_CONTAINMENT": request.param},
    )
    freeze(process)
    return process


@pytest.mark.parametrize("command", ["stop", "kill"])
def test_a_frozen_supervisor_holds_up_no_stop(
    home: AgentctlHome, runs: Foregrounds, frozen: "subprocess.Popen[bytes]", command: str
) -> None:
    """Everything of the run is gone, the supervisor is untouched, and one stop is in the log."""
    done = home.run(command, "demo", "--reason", "frozen")

    assert done.code == 0, done
    assert is_alive(frozen.pid)
    assert runs.left() == []
    assert "processes gone" in done.out

    frozen.send_signal(signal.SIGCONT)
    frozen.communicate(timeout=20)
    report = home.run("show", "demo", "-o", "json").json()
    assert (report["result"], report["reason"]) == ("stopped", "user")
    assert "(frozen)" in report["detail"]
    # What the client did and saw has become the report's evidence.
    rungs = [step["step"] for step in report["ladder"]]
    assert rungs[-1] in ("sigterm", "sigkill")
    assert frozen.returncode == (137 if rungs[-1] == "sigkill" else 143)
    assert report["processes"]["seen"] >= 1
    assert report["processes"]["survivors"] == 0
    records = [record.body for record in LogReader(home.root / "runs" / report["id"])]
    (stop,) = [body for body in records if isinstance(body, Stop)]
    assert stop.intent
    assert home.run(command, "demo").out == "demo: already finished: stopped\n"


def test_two_stops_of_a_frozen_run_are_one(
    home: AgentctlHome, runs: Foregrounds, frozen: "subprocess.Popen[bytes]"
) -> None:
    """The second joins the first one's intent."""
    both = [home.start("stop", "demo") for _ in range(2)]
    for process in both:
        out, err = process.communicate(timeout=20)
        assert process.returncode == 0, (out, err)
    assert runs.left() == []
    frozen.send_signal(signal.SIGCONT)
    frozen.communicate(timeout=20)


def test_a_dead_supervisors_run_is_finished_by_whoever_looks(
    home: AgentctlHome, marker: str, runs: Foregrounds
) -> None:
    """The run is gone within a second, and `show` tells that it is lost."""
    process = runs.up(SLEEPER, "--name", "demo")
    process.kill()
    process.communicate()
    assert wait_until_gone(marker, within_s=1.0) == []

    since = Stopwatch()
    done = home.run("stop", "demo")
    assert (done.code, done.out) == (0, "demo: already finished: lost\n")
    assert since.uncontended_s < 2
    report = home.run("show", "demo", "-o", "json").json()
    assert (report["result"], report["reason"]) == ("lost", "supervisor_died")
    assert report["processes"]["survivors"] == 0


def test_a_supervisor_that_freezes_during_a_stop_holds_it_up_no_more(
    home: AgentctlHome, runs: Foregrounds
) -> None:
    """Who waits for the end notices the silence, and ends the run in the supervisor's place."""
    process = runs.up(STUBBORN, "--name", "demo", "--term-grace", "1h")
    stopping = home.start("stop", "demo", "--term-grace", "1h")
    assert stopping.stderr is not None
    assert b"SIGTERM" in stopping.stderr.readline()
    freeze(process)
    hasty = home.run("stop", "demo", "--term-grace", "100ms")
    stopping.communicate(timeout=20)

    assert (hasty.code, stopping.returncode) == (0, 0)
    assert runs.left() == []
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=20)


def test_what_the_keepers_did_is_told_by_the_keepers(home: AgentctlHome, runs: Foregrounds) -> None:
    """Killed amid a stop: the run ended then, by its keepers, and not on the SIGTERM before."""
    process = runs.up(
        "trap 'echo heard' TERM; echo up; while :; do sleep 0.1; done",
        *("--name", "demo", "--term-grace", "60"),
    )
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.readline() == b"heard\n"
    process.kill()
    process.wait()
    report = home.run("show", "demo", "-o", "json").json()
    assert report["result"] == "stopped"
    assert report["detail"].endswith("its keepers killed it when its supervisor was gone")
    assert report["duration_s"] is not None
    assert not (home.root / "runs" / report["id"] / "exit").exists()
