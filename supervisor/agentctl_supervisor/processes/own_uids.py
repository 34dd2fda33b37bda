"""Gives each run that root starts a uid of its own: at strict and standard, or in the fallback.

Uid 0 is not bound by DAC, RLIMIT_NPROC or the permission to signal.  It may also write the
kernel's settings, whatever else is taken from it.  The uid is made from the supervisor's pid and a
slot.  So no two live runs of this machine share a uid, and no file or lock is needed.  All
supervisors of one process use the same slots.
"""

import functools
from collections import deque
from typing import Final

from agentctl_supervisor.errors import SpawnError

_BLOCK_BITS: Final = 30
"""Blocks begin far above the uids that useradd and containers use.  The first block is below 2**31,
the limit of some tools, so it is used first."""
_BLOCKS: Final = 3
_SLOT_BITS: Final = 8
_PID_BITS: Final = 22  # PID_MAX_LIMIT, proc_sys_kernel(5)
_NOBODY_AT_ALL: Final = (1 << 32) - 1
"""The value that means "leave the uid unchanged" to setresuid(2)."""


def uids_of(pid: int) -> frozenset[int]:
    """Return all uids that runs of the supervisor process *pid* can have or have had."""
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
        # The uid that was given back last is used last: leftovers of its run are then more likely
        # to be gone.
        self._free = deque(sorted(uids_of(pid)))
        self._most = len(self._free)

    def take(self) -> int:
        """Return a uid that no live run has.

        Raises:
            SpawnError: all uids (about 768) are in use.
        """
        if not self._free:
            raise SpawnError(
                f"{self._most} runs with a uid of their own are the most that root can have",
                "start another supervisor for more, or run it as an ordinary user",
            )
        return self._free.popleft()

    def give_back(self, uid: int) -> None:
        """Make *uid* free again, after all processes of its run are gone."""
        self._free.append(uid)


@functools.cache
def own_uids(pid: int) -> OwnUids:
    """Return the single `OwnUids` of our own process, *pid*.  A fork of it gets another."""
    return OwnUids(pid)
