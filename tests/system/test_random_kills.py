"""Keepers are killed at every step of the spawn and at random instants: nothing is left or lost.

``AGENTCTL_TEST_ROUNDS=300`` plays so many rounds.  A round that fails has its number in
its name, and is the same again in the next run.
"""

import os
import signal
from collections.abc import Iterator
from typing import Final

import pytest

from agentctl_protocol.vocabulary import Containment, Reason, Result
from agentctl_supervisor.recover.recovery import current
from agentctl_testkit import alive
from agentctl_testkit.clock import Stopwatch
from agentctl_testkit.faults import (
    GONE_WITHIN_S,
    SPAWN_STEPS,
    Round,
    Tally,
    Victim,
    Work,
    keepers_of,
    play,
    rounds,
    staged,
    tell,
)

ROUNDS: Final = rounds(int(os.environ.get("AGENTCTL_TEST_ROUNDS", "24")))

LEAVES_WITHIN_S: Final = 2.0
"""How long a supervisor whose runs are gone may take to write its reports and to end."""


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    counts = Tally()
    yield counts
    tell(request, str(counts))


@pytest.mark.parametrize("played", ROUNDS, ids=str)
def test_no_keeper_is_survived_by_its_run(played: Round, tally: Tally) -> None:
    """After SIGKILL to any of its keepers a run is gone within a second, and its log is whole.

    The report says what the log says: ``lost`` unless something had decided before.
    """
    play(played, tally)


@pytest.mark.parametrize("supervisor", [Victim.COMMAND, Victim.EMBEDDING])
@pytest.mark.parametrize("work", [Work.TREE, Work.WORKER])
def test_spawner_and_warden_killed_together_leave_nothing(supervisor: Victim, work: Work) -> None:
    """In the fallback a supervisor that is a subreaper sweeps what both would have swept."""
    with staged() as stage:
        spec = stage.spec(work)
        if supervisor is Victim.COMMAND:
            pid = stage.command(spec, containment=Containment.SUBREAPER)
        else:
            pid = stage.embed(spec, containment=Containment.SUBREAPER, subreaper=True)
        stage.heard("up root" if work is Work.TREE else "up worker")
        (spawner,), (warden,), _ = keepers_of(pid)
        # Stopped first, so that neither can act on the other's death.
        for keeper in (spawner, warden):
            os.kill(keeper, signal.SIGSTOP)
        for keeper in (spawner, warden):
            os.kill(keeper, signal.SIGKILL)
        since_the_kill = Stopwatch()
        (directory,) = stage.runs()
        assert stage.process is not None
        # The command carries the marker itself: it is over when its run is.
        stage.process.wait(10)
        assert since_the_kill.uncontended_s < GONE_WITHIN_S + LEAVES_WITHIN_S
        assert alive(*stage.needles) == []
        report = current(directory)
        assert (report.result, report.reason) == (Result.LOST, Reason.SUPERVISOR_DIED)
        assert report.processes.survivors == 0


def test_the_rounds_strike_at_every_step_and_every_keeper() -> None:
    """Already the first 24 rounds name each step of a spawn and each victim."""
    named = [played for played in rounds(24) if played.step]
    assert {played.step for played in named} == {s for steps in SPAWN_STEPS.values() for s in steps}
    assert {played.victim for played in named} == set(Victim)
