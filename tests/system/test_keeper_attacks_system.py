"""Agents attack their keepers from inside: refused or harmless, and the run can still be ended.

Each attempt of ``tests/agents/keeper_attacker.py`` is refused by the kernel, unless it is
in `HARMLESS`, which says why.  Afterwards no keeper is stopped or traced, a stop ends the
run, and so does its deadline when the supervisor is frozen.
"""

import contextlib
import dataclasses
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from agentctl_protocol.records import Started, Stop
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Containment, Reason, Result, Rung
from agentctl_supervisor.recover.recovery import current
from agentctl_testkit import AGENTS, alive, wait_until_gone
from agentctl_testkit.capabilities import Capability, cgroup2_mount, needs
from agentctl_testkit.clock import Stopwatch
from agentctl_testkit.faults import Stage, keepers_of, others_can_run_python, records, staged

TIME_S: Final = 2.0
GRACE_S: Final = 0.2
SLACK_S: Final = 0.7
"""Both dead-man timers, and a busy machine."""

HARMLESS: Final[dict[Containment, set[tuple[str, str]]]] = {
    Containment.PID_NAMESPACE: {
        # pid 1 of a namespace takes no signal from inside (pid_namespaces(7)).
        ("sigstop", "init"),
        ("sigkill", "init"),
        ("tgkill", "init"),
        ("pidfd_send_signal", "init"),
        ("f_setown", "init"),
        ("f_setown_ex", "init"),
        # Init shares the agent's fate: who starves it harms itself.
        ("prlimit", "init"),
        ("sched_idle", "init"),
        # It reaches nobody but its own.
        ("kill_everybody", "system"),
    },
    Containment.SUBREAPER: set(),
}
SAME_UID: Final = {
    # The supervisor's own file is its user's.  If the system is out of memory the supervisor
    # is then the first to die, and its runs with it.
    ("oom_score_adj", "supervisor"),
}
"""Harmless in the fallback where agent and supervisor are one user's."""
REFUSALS: Final = {"EPERM", "EACCES", "EROFS", "ESRCH", "ENOENT", "EINVAL", "ENOSYS"}


@dataclasses.dataclass(frozen=True)
class Cell:
    """Where an attack is made."""

    containment: Containment
    ordinary_user: bool

    def __str__(self) -> str:
        return f"{self.containment}-{'nobody' if self.ordinary_user else 'self'}"


CELLS: Final = [
    Cell(containment, ordinary)
    for containment in Containment
    for ordinary in ((False, True) if others_can_run_python() else (False,))
]


def _attacker(stage: Stage, cell: Cell, *, time_s: float | None = None) -> tuple[RunSpec, int]:
    how = "init" if cell.containment is Containment.PID_NAMESPACE else "chain"
    spec = RunSpec(argv=(sys.executable, "-S", f"{AGENTS}/keeper_attacker.py", how))
    options = ["--name", "attacker", "--grace", f"{GRACE_S}s", "--term-grace", f"{GRACE_S}s"]
    if time_s is not None:
        options += ["--time", f"{time_s}s"]
    return spec, stage.command(spec, *options, containment=cell.containment)


def _attempts(stage: Stage) -> dict[tuple[str, str], str]:
    stage.heard("up root")
    said = (line.split() for line in stage.roll_call.lines if line.startswith("attack "))
    return {(name, target): outcome for _, name, target, outcome in said}


def _states(pids: list[int]) -> set[str]:
    """State letters and tracers of processes that should do nothing but wait."""
    found = set()
    for pid in pids:
        status = Path(f"/proc/{pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        found |= {fields["State"][0], f"traced by {fields['TracerPid']}"}
    return found


def _assert_stoppable(stage: Stage) -> None:
    stopped = stage.home.run("stop", "attacker", "-o", "json", within_s=20)
    assert stopped.code == 0, stopped.err
    assert stage.process is not None
    # The command carries the marker like its run, and may still be on its way out.
    assert [found for found in alive(stage.marker) if found.pid != stage.process.pid] == []
    (directory,) = stage.runs()
    stage.process.wait(10)
    report = current(directory)
    assert (report.result, report.reason) == (Result.STOPPED, Reason.USER)
    # A root that ignores SIGTERM: nothing but the last rung can have ended it.
    assert report.ladder[-1].step is Rung.SIGKILL
    assert report.processes.survivors == 0


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_no_attack_on_its_keepers_keeps_a_run_from_being_stopped(cell: Cell) -> None:
    """Each attempt is refused or harmless; the keepers live on untraced, and a stop works."""
    with staged(ordinary_user=cell.ordinary_user) as stage:
        _, supervisor = _attacker(stage, cell)
        attempts = _attempts(stage)

        assert len(attempts) > 20
        harmless = HARMLESS[cell.containment]
        if cell.ordinary_user or os.geteuid() != 0:
            harmless = harmless | SAME_UID
        succeeded = {attempt for attempt, outcome in attempts.items() if outcome == "done"}
        assert succeeded <= harmless
        refused = {attempts[attempt] for attempt in attempts.keys() - succeeded}
        assert refused <= REFUSALS
        spawners, wardens, roots = keepers_of(supervisor)
        assert len(spawners) == len(wardens) == len(roots) == 1
        watching = [supervisor, *spawners, *wardens]
        if cell.containment is Containment.PID_NAMESPACE:
            watching += roots
        assert _states(watching) <= {"S", "R", "traced by 0"}

        _assert_stoppable(stage)


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_no_attack_on_its_keepers_holds_off_the_deadline(cell: Cell) -> None:
    """After all attacks, and with the supervisor frozen, the run dies at deadline and graces."""
    time_s = TIME_S
    while not _dies_at_its_deadline(cell, time_s):
        # Its attacks took longer than it may live, and so proved nothing.
        time_s *= 2
        assert time_s < 60


def _dies_at_its_deadline(cell: Cell, time_s: float) -> bool:
    """Whether all attacks were made before; if so, it does."""
    with staged(ordinary_user=cell.ordinary_user) as stage:
        _, supervisor = _attacker(stage, cell, time_s=time_s)
        if not _attempted_in_time(stage):
            return False
        os.kill(supervisor, signal.SIGSTOP)
        (directory,) = stage.runs()
        (began,) = (r.time_ns for r in records(directory) if isinstance(r.body, Started))
        if any(isinstance(record.body, Stop) for record in records(directory)):
            return False
        # The frozen command itself carries the marker, too: its run's processes carry the id.
        assert alive(directory.id)

        deadline = began / 1e9 + time_s + 2 * GRACE_S + SLACK_S
        left = wait_until_gone(directory.id, within_s=deadline - time.time())
        os.kill(supervisor, signal.SIGCONT)
        assert left == []
        assert stage.process is not None
        assert stage.process.wait(10) == 124
        report = current(directory)
        assert (report.result, report.reason) == (Result.LIMIT, Reason.TIME)
        return True


def _attempted_in_time(stage: Stage) -> bool:
    """Wait until all attempts are made, or until the run has ended, and say which."""
    assert stage.process is not None
    ended = os.pidfd_open(stage.process.pid)
    try:
        while "up root" not in " ".join(stage.roll_call.lines):
            readable, _, _ = select.select([ended, stage.roll_call.fileno()], [], [], 60)
            assert readable, "neither at its end nor at its deadline"
            stage.roll_call.hear()
            if ended in readable:
                return False
        return True
    finally:
        os.close(ended)


@contextlib.contextmanager
def _cgroup() -> Iterator[Path]:
    mount = cgroup2_mount()
    assert mount is not None
    directory = mount / f"agentctl-test-{os.getpid()}"
    directory.mkdir()
    try:
        yield directory
    finally:
        (directory / "cgroup.freeze").write_text("0")
        with contextlib.suppress(OSError):
            (directory / "cgroup.kill").write_text("1")
        _remove(directory)


def _remove(directory: Path) -> None:
    deadline = time.monotonic() + 10
    while True:
        for below, _, _ in os.walk(directory, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(below)
        if not directory.exists():
            return
        assert time.monotonic() < deadline, f"{directory} is still in use"
        time.sleep(0.01)  # rmdir says EBUSY until the last process in it is reaped


@needs(Capability.CGROUP2, Capability.PID_NAMESPACE)
@pytest.mark.parametrize("containment", list(Containment))
def test_cgroup_files_are_no_weapon_against_the_keepers(
    containment: Containment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent can neither freeze the group that its keepers are in nor leave its own."""
    with _cgroup() as directory, staged() as stage:
        monkeypatch.setitem(stage.home.environment, "AGENTCTL_TEST_CGROUP", str(directory))
        mount = str(directory.parent)
        monkeypatch.setitem(stage.home.environment, "AGENTCTL_TEST_CGROUP_MOUNT", mount)
        _, supervisor = _attacker(stage, Cell(containment, ordinary_user=False), time_s=4)
        (directory / "cgroup.procs").write_text(str(supervisor))
        since = Stopwatch()
        try:
            attempts = _attempts(stage)
            attempts = {key: value for key, value in attempts.items() if key[1] == "cgroup"}
            assert len(attempts) == 4
            assert "done" not in attempts.values(), attempts
            _assert_stoppable(stage)
        finally:
            (directory / "cgroup.freeze").write_text("0")
        assert since.uncontended_s < 10


@needs(Capability.PID_NAMESPACE)
def test_who_starves_init_ends_itself() -> None:
    """Init's limits are its agent's to lower (same uid): the run is over then, and wholly."""
    with staged() as stage:
        spec = RunSpec(argv=(sys.executable, "-S", f"{AGENTS}/keeper_attacker.py", "starve"))
        stage.command(spec, containment=Containment.PID_NAMESPACE)
        assert stage.process is not None
        assert stage.process.wait(20) == 125
        assert alive(stage.marker) == []
        (directory,) = stage.runs()
        report = current(directory)
        assert (report.result, report.processes.survivors) == (Result.LOST, 0)


@pytest.mark.parametrize("containment", list(Containment))
def test_killing_everybody_it_can_reach_ends_nothing_but_itself(containment: Containment) -> None:
    """``kill -9 -1``: the keepers live, and report how the run went on."""
    with staged() as stage:
        spec = RunSpec(argv=("/bin/sh", "-c", "sleep 60 & kill -9 -1; exit 5"))
        stage.command(spec, containment=containment)
        assert stage.process is not None
        assert stage.process.wait(20) in (5, 137)
        assert alive(stage.marker) == []
        (directory,) = stage.runs()
        assert current(directory).result is Result.FAILED
