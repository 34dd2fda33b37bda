"""A uid of its own for each run that root starts in the subreaper fallback.

RLIMIT_NPROC and the permission to signal go by uid and mean nothing to uid 0,
so without a pid namespace root's runs need one.  The number is made of the
supervisor's pid and a slot: no two live runs of this machine share one, and
nothing has to be written down or locked.
"""

from typing import Final

from agentctl_supervisor.errors import SpawnError

_BASE: Final = 1 << 30
"""Far above what useradd and containers hand out, and below 2**31, where some tools stop."""
_SLOT_BITS: Final = 8
_PID_BITS: Final = 22  # PID_MAX_LIMIT, proc_sys_kernel(5)


def uids_of(pid: int) -> range:
    """All uids that the runs of the supervisor with the number *pid* can have had."""
    first = _BASE | (pid & ((1 << _PID_BITS) - 1)) << _SLOT_BITS
    return range(first, first + (1 << _SLOT_BITS))


class OwnUids:
    """The uids of one supervisor; *pid* is its own."""

    def __init__(self, pid: int) -> None:
        self._first = uids_of(pid).start
        self._free = list(range(1 << _SLOT_BITS))

    def take(self) -> int:
        """A uid that no live run has.

        Raises:
            SpawnError: 256 are in use.
        """
        if not self._free:
            raise SpawnError(
                f"{1 << _SLOT_BITS} runs without a pid namespace are the most that root can have",
                "start another supervisor for more",
            )
        return self._first | self._free.pop()

    def give_back(self, uid: int) -> None:
        """The run with *uid* is gone, all of it."""
        self._free.append(uid - self._first)
