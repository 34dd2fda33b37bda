"""Keepers are killed at every step of the spawn and at random instants: nothing is left or lost.

``AGENTCTL_TEST_ROUNDS=300`` plays so many rounds.  A round that fails has its number in
its name, and is the same again in the next run.
"""

import os
from collections.abc import Iterator
from typing import Final

import pytest

from agentctl_testkit_faults import SPAWN_STEPS, Round, Tally, Victim, play, rounds

ROUNDS: Final = rounds(int(os.environ.get("AGENTCTL_TEST_ROUNDS", "24")))


@pytest.fixture(scope="module")
def tally(request: pytest.FixtureRequest) -> Iterator[Tally]:
    counts = Tally()
    yield counts
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"\n{counts}")


@pytest.mark.parametrize("played", ROUNDS, ids=str)
def test_no_keeper_is_survived_by_its_run(played: Round, tally: Tally) -> None:
    """After SIGKILL to any of its keepers a run is gone within a second, and its log is whole.

    The report says what the log says: ``lost`` unless something had decided before.
    """
    play(played, tally)


def test_the_rounds_strike_at_every_step_and_every_keeper() -> None:
    """Already the first 24 rounds name each step of a spawn and each victim."""
    named = [played for played in rounds(24) if played.step]
    assert {played.step for played in named} == {s for steps in SPAWN_STEPS.values() for s in steps}
    assert {played.victim for played in named} == set(Victim)
