"""Stopping a run whose supervisor is frozen or dead."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_protocol.records import (
    Answered,
    ContainedRecord,
    End,
    Exit,
    Observed,
    Record,
    RungRecord,
    Stop,
)
from agentctl_protocol.report import Actor, Processes
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import By, Containment, Reason, Result, Rung, State
from agentctl_supervisor.processes.process_tree import identity_of, open_pidfd, wait_dead
from agentctl_supervisor.recover.stop_seen_by_client import told
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.stop.stop_without_supervisor import (
    KILL_SIGNAL,
    TERMINATE_SIGNAL,
    Grip,
    Move,
    _leave,
    plan,
)
from agentctl_supervisor.store.finished_index import FinishedIndex
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import RunDirectory
from agentctl_testkit import AgentctlHome, is_alive, wait_until_gone
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.cli import SLEEPER, STUBBORN, Foregrounds, freeze
from agentctl_testkit.clock import Stopwatch
from agentctl_testkit.held import HeldRun

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
    # Counted before SIGTERM, and by nobody when the keepers killed it.
    assert report["processes"]["at_least"]
    assert report["processes"]["seen"] >= 1
    assert report["processes"]["killed"] >= 1
    assert "at least" in home.run("show", "demo").out
    assert not (home.root / "runs" / report["id"] / "exit").exists()


@pytest.mark.parametrize("containment", ["pid-namespace", "subreaper"])
def test_the_wardens_timer_counts_nobody_and_the_report_says_so(
    home: AgentctlHome, runs: Foregrounds, containment: str
) -> None:
    """The supervisor was frozen at the deadline: of three processes one is certain."""
    process = runs.up(
        "sleep 60 & sleep 60 & echo up; wait",
        *("--name", "demo", "--time", "1s", "--grace", "100ms", "--term-grace", "100ms"),
        environment={"AGENTCTL_CONTAINMENT": containment},
    )
    keepers = _contained_of(home.root)
    freeze(process)
    root = open_pidfd(keepers.root)
    if root is not None:
        assert wait_dead([root], 20)
        os.close(root)
    early = home.run("show", "demo", "-o", "json").json()
    assert early["state"] == "running", "how it ended, only its supervisor has heard"
    # A dead warden may have left somebody behind, a dead init has not.
    assert ("nothing is left of it" in early["detail"]) == (containment == "pid-namespace")
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=20)
    report = home.run("show", "demo", "-o", "json").json()
    assert (report["result"], report["reason"]) == ("limit", "time")
    assert report["processes"]["at_least"]
    assert report["processes"]["seen"] >= 1
    assert "at least" in home.run("show", "demo").out


@pytest.mark.parametrize("command", ["stop", "kill"])
def test_who_looks_at_a_frozen_supervisors_run_sees_what_the_client_saw(
    home: AgentctlHome, frozen: "subprocess.Popen[bytes]", command: str
) -> None:
    """Proven gone, it is finished for all who look and wait, on the word of who ended it."""
    waiting = home.start("wait", "demo")
    following = home.start("logs", "-f", "demo")
    assert home.run(command, "demo").code == 0

    out, _ = waiting.communicate(timeout=20)
    assert (waiting.returncode, b"demo stopped by uid" in out) == (0, True), out
    following.communicate(timeout=20)
    assert home.run("wait", "demo", "--timeout", "20s").code == 0
    early = home.run("show", "demo", "-o", "json").json()
    assert (early["state"], early["result"], early["processes"]["survivors"]) == (
        *("finished", "stopped", 0),
    )
    assert "told by the client that ended it" in early["detail"]
    assert early["ended_at"] is not None
    assert "demo" not in home.run("ps").out
    assert "demo" in home.run("ps", "-a").out
    # Which is not the last word, and so in no index.
    assert FinishedIndex(home.root).read() == {}
    assert home.run(command, "demo").out == "demo: already finished: stopped\n"

    frozen.send_signal(signal.SIGCONT)
    frozen.communicate(timeout=20)
    late = home.run("show", "demo", "-o", "json").json()
    assert "told by the client" not in late["detail"]
    assert late["ladder"] == early["ladder"]


def test_files_beside_a_log_end_no_run_that_lives(
    home: AgentctlHome, runs: Foregrounds, frozen: "subprocess.Popen[bytes]"
) -> None:
    """A run at basic can write them: as long as its keepers live, it is not finished."""
    run_id = home.run("show", "demo", "-o", "json").json()["id"]
    directory = RunDirectory(home.root / "runs" / run_id)
    directory.write_intent(_STOP)
    directory.write_observed(Observed((), Processes(seen=1)))
    assert home.run("show", "demo", "-o", "json").json()["state"] == "stopping"
    assert home.run("wait", "demo", "--timeout", "100ms").code == 124
    assert home.run("kill", "demo").code == 0
    assert runs.left() == []
    # A word that was left before and is wrong does not stand in the way of the proof.
    assert home.run("show", "demo", "-o", "json").json()["state"] == "finished"


def test_a_stop_that_leaves_survivors_is_not_the_end(home: AgentctlHome) -> None:
    """What was seen then is replaced by whoever proves the end."""
    with HeldRun(home, "demo") as run:
        run.directory.write_intent(_STOP)
        run.directory.write_observed(Observed((), Processes(seen=2, survivors=1)))
        assert home.run("show", "demo", "-o", "json").json()["state"] == "stopping"
        _leave(run.directory, Observed((), Processes(seen=2, killed=2)))
        report = home.run("show", "demo", "-o", "json").json()
        assert (report["state"], report["processes"]["killed"]) == ("finished", 2)


# --- from another pid namespace ---------------------------------------------

_ELSEWHERE = ("unshare", "-pfm", "--mount-proc", "--kill-child")


@needs(Capability.ROOT)
def test_a_live_run_is_stopped_by_its_supervisor_from_another_pid_namespace(
    home: AgentctlHome, runs: Foregrounds
) -> None:
    """Its lock proves that it lives, its socket is in the shared directory."""
    process = runs.up(SLEEPER, "--name", "demo")
    shown = _elsewhere(home, "show", "demo", "-o", "json")
    assert json.loads(shown.stdout)["state"] == "running"
    done = _elsewhere(home, "stop", "demo", "--grace", "0")
    assert (done.returncode, runs.left()) == (0, []), done
    process.communicate(timeout=20)


@needs(Capability.ROOT)
def test_a_frozen_supervisors_run_is_not_called_gone_from_another_pid_namespace(
    home: AgentctlHome, runs: Foregrounds, frozen: "subprocess.Popen[bytes]"
) -> None:
    """Nobody is killed by a number there; the stop is recorded and holds afterwards."""
    done = _elsewhere(home, "kill", "demo")
    assert done.returncode == 1
    assert "demo: NOT proven gone" in done.stdout
    assert "another pid namespace" in done.stdout
    assert runs.left() != []
    assert json.loads(_elsewhere(home, "show", "demo", "-o", "json").stdout)["state"] == "stopping"

    assert home.run("kill", "demo").code == 0
    assert runs.left() == []
    shown = json.loads(_elsewhere(home, "show", "demo", "-o", "json").stdout)
    assert (shown["state"], shown["result"]) == ("finished", "stopped")


@needs(Capability.ROOT)
def test_a_dead_supervisors_run_is_finished_where_it_can_be_seen_only(
    home: AgentctlHome, runs: Foregrounds, marker: str
) -> None:
    """Elsewhere it is neither lost nor gone: that cannot be told, and nothing is written."""
    process = runs.up(SLEEPER, "--name", "demo")
    process.kill()
    process.communicate()
    assert wait_until_gone(marker, within_s=1.0) == []

    shown = json.loads(_elsewhere(home, "show", "demo", "-o", "json").stdout)
    assert (shown["state"], shown["result"]) == ("running", None)
    assert "cannot be told from this pid namespace" in shown["detail"]
    waited = _elsewhere(home, "wait", "demo")
    assert waited.returncode == 125
    assert "cannot be told" in waited.stderr
    stopped = _elsewhere(home, "stop", "demo")
    assert (stopped.returncode, "NOT proven gone" in stopped.stdout) == (1, True)

    assert home.run("show", "demo", "-o", "json").json()["result"] == "lost"
    assert json.loads(_elsewhere(home, "show", "demo", "-o", "json").stdout)["result"] == "lost"


def _contained_of(home: Path) -> ContainedRecord:
    (run,) = (home / "runs").iterdir()
    found = [record.body for record in LogReader(run)]
    (contained,) = [body for body in found if isinstance(body, ContainedRecord)]
    return contained


def _elsewhere(home: AgentctlHome, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*_ELSEWHERE, *home.argv(*arguments)],
        env=home.environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
