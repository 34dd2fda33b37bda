"""What a report says when the kernel killed for want of memory: what is known, and no more."""

from pathlib import Path
from signal import SIGKILL

import pytest

from agentctl_protocol.records import ContainedRecord, Created, Exit, Lost
from agentctl_protocol.spawning import Exited, ProcessIdentity
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Containment
from agentctl_supervisor.processes import oom_kills
from agentctl_supervisor.recover.leftover_processes import Leftovers
from agentctl_supervisor.recover.recovery import missing_records
from agentctl_supervisor.report.ending import how_it_ended
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.report.run_outcome import Facts, outcome

SELF = ProcessIdentity(1, 1)
TOLD = "the kernel killed processes for want of memory while it ran"


class Known:
    """A run that was created when the kernel had killed three."""

    created = Created(supervisor=SELF, boot_id="boot", oom_kills=3)
    contained: ContainedRecord | None = None


@pytest.mark.parametrize(("now", "told"), [(3, ""), (4, TOLD), (oom_kills.UNKNOWN, "")])
def test_the_machines_count_is_compared(
    monkeypatch: pytest.MonkeyPatch, now: int, told: str
) -> None:
    """It rose while the run was there, or it did not, or nobody knows."""
    monkeypatch.setattr(oom_kills, "count", lambda: now)
    assert oom_kills.while_there_was(Known()) == told


@pytest.mark.parametrize(
    ("own", "told"),
    [("oom 2\noom_kill 2\n", "2 of its processes"), ("oom 0\noom_kill 0\n", ""), ("", TOLD)],
)
def test_the_runs_own_group_knows_better(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, own: str, told: str
) -> None:
    """Where it counts; then what was killed elsewhere is not taken for the run's."""
    monkeypatch.setattr(oom_kills, "count", lambda: 9)
    (tmp_path / "memory.events").write_text(own)
    known = Known()
    known.contained = ContainedRecord(
        warden=SELF, root=SELF, containment=Containment.PID_NAMESPACE, cgroup=str(tmp_path)
    )
    found = oom_kills.while_there_was(known)
    assert told in found
    assert bool(found) == bool(told)


def test_the_kernel_tells_its_count() -> None:
    """A number that this kernel has, in /proc/vmstat."""
    assert oom_kills.count() >= 0


def _ended(word: Exited | None) -> list[object]:
    return list(
        how_it_ended(
            word,
            RunSpec(argv=["x"]),
            stopped=False,
            last_rung=None,
            spawner_died=False,
            gave_up=False,
            out_of_memory=TOLD,
        )
    )


@pytest.mark.parametrize("end", [Exited(signal=SIGKILL), Exited(code=137)], ids=repr)
def test_a_run_that_sigkill_may_have_ended_is_told_so(end: Exited) -> None:
    """Itself, or what a shell waited for."""
    (exit_,) = _ended(end)
    assert isinstance(exit_, Exit)
    decided = outcome(Facts(decided=exit_, exit=exit_, ended=True))
    assert decided is not None
    assert decided.detail.endswith(f"; {TOLD}")


@pytest.mark.parametrize("end", [Exited(code=0), Exited(code=1), Exited(signal=11)], ids=repr)
def test_a_run_that_ended_otherwise_is_not_misled(end: Exited) -> None:
    """Somebody else's hog is not the cause of everything that happens meanwhile."""
    (exit_,) = _ended(end)
    assert isinstance(exit_, Exit)
    assert exit_.detail == ""


def test_a_run_whose_keepers_were_killed_is_told_so() -> None:
    """By the supervisor that lives, or by whoever finds the run after its supervisor died."""
    (lost,) = _ended(None)
    assert isinstance(lost, Lost)
    assert TOLD in lost.detail
    fold = Fold("r-aaaaaaaa", RunSpec(argv=["x"]))
    left = Leftovers(seen=0, killed=0, survivors=())
    found, _ = missing_records(fold, None, left, 0, out_of_memory=TOLD)
    assert isinstance(found, Lost)
    assert TOLD in found.detail
