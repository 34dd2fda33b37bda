"""Runs that take what they share with others: a bystander under the same supervisor lives with it.

A short round of ``tests/benchmarks/bench_neighbours.py``, which measures and has all kinds.
Here are those that use up nothing of the machine's.  The bounds are far from what is promised,
so that a busy machine breaks none; a real stall breaks them all.
"""

from typing import Final

import pytest

from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.neighbours import Neighbour, beside, neighbours

WITHIN_S: Final = 10.0
GROWTH: Final = 256 << 20
SHORT_ROUND: Final = ("approvals", "batched_messages")


def _parameters() -> list[object]:
    made: list[object] = []
    for neighbour in neighbours():
        if not str(neighbour).startswith(SHORT_ROUND):
            continue
        marks = [needs(Capability.PID_NAMESPACE)]
        if neighbour.needs == "root":
            marks.append(needs(Capability.ROOT))
        if neighbour.kind:
            marks.append(pytest.mark.alone)
        made.append(pytest.param(neighbour, id=str(neighbour), marks=marks))
    return made


@pytest.mark.parametrize("neighbour", _parameters())
def test_a_bystander_does_not_suffer(neighbour: Neighbour) -> None:
    """It is stopped, a new run starts, a shell's stop works; the supervisor lives, and is small."""
    seen = beside(neighbour, attackers=1, seconds=0.5, baselines=0)

    assert seen.trouble == [], seen.summary
    times_s = (seen.stop_s, seen.shell_s, seen.new_s, seen.next_s, seen.end_s)
    assert max(times_s) < WITHIN_S, seen.summary
    assert seen.growth < GROWTH, seen.summary


def test_each_attack_says_what_it_does() -> None:
    """A new file in the directory is an attack: no list has to be changed."""
    found = neighbours()
    assert len({str(neighbour) for neighbour in found}) == len(found)
    assert all(neighbour.does for neighbour in found)
