"""A uid of its own for each run that root starts at strict and standard, or in the fallback.

To uid 0, DAC, RLIMIT_NPROC and the permission to signal mean nothing; and it may write the
kernel's settings whatever else is taken from it.  The number is made of the supervisor's pid
and a slot: no two live runs of this machine share one, and nothing has to be written down or
locked.  All supervisors of one process take from the same slots.
"""

import functools
from collections import deque
from typing import Final

from agentctl_supervisor.errors import SpawnError

_BLOCK_BITS: Final = 30
"""Blocks begin far above what useradd and containers hand out.  The first is below 2**31, where
some tools stop, and so it is used first."""
_BLOCKS: Final = 3
_SLOT_BITS: Final = 8
_PID_BITS: Final = 22  # PID_MAX_LIMIT, proc_sys_kernel(5)
_NOBODY_AT_ALL: Final = (1 << 32) - 1
"""What setresuid(2) takes for "leave it as it is"."""


def uids_of(pid: int) -> frozenset[int]:
    """All uids that the runs of the supervisor with the number *pid* can have had."""
    within = (pid & ((1 << _PID_BITS) - 1)) << _SLOT_BITS
    return frozenset(
        uid
        for block in range(1, 1 + _BLOCKS)
        for slot in range(1 << _SLOT_BITS)
        if (uid := block << _BLOCK_BITS | within | slot) != _NOBODY_AT_ALL
    )


class OwnUids:
    """The uids of the supervisors in the process *pid*."""

    def __init__(self, pid: int) -> None:
        # The one that was given back last is used last: what its run left somewhere is the
        # more likely to be gone.
        self._free = deque(sorted(uids_of(pid)))
        self._most = len(self._free)

    def take(self) -> int:
        """A uid that no live run has.

        Raises:
            SpawnError: all, about 768, are in use.
        """
        if not self._free:
            raise SpawnError(
                f"{self._most} runs with a uid of their own are the most that root can have",
                "start another supervisor for more, or run it as an ordinary user",
            )
        return self._free.popleft()

    def give_back(self, uid: int) -> None:
        """The run with *uid* is gone, all of it."""
        self._free.append(uid)


@functools.cache
def own_uids(pid: int) -> OwnUids:
    """The one `OwnUids` of the process *pid*, which is our own.  A fork of it gets another."""
    return OwnUids(pid)
