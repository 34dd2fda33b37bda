"""Decide which change times (ctime) mean "since the run began".

The kernel takes the times of inodes from its coarse clock, which lags behind by up to a tick
(10 ms).  The beginning is read from the same clock, so a later change never has an older time.  A
change in the same tick as the beginning counts as changed, too.  (Linux 6.13 and newer may use
finer times, but none below that clock: then a change in the tick before counts, too.)
"""

import time
from typing import Final, NamedTuple

_CLOCK_REALTIME_COARSE: Final = 5  # clock_gettime(2), 2.6.32; Python has no name for it
_TICK_NS: Final = 10_000_000
_SECOND_NS: Final = 1_000_000_000
_COARSEST_NS: Final = 2 * _SECOND_NS
"""FAT has a resolution of two seconds, ext3 of one second."""


class Beginning(NamedTuple):
    """The time when a run began.

    ``coarse_ns``: the wall time as inodes get it.
    ``ahead_ns``: the wall time minus the time since boot.  It shows whether the wall clock was set
    back.  Suspending the machine does not change it.
    """

    coarse_ns: int
    ahead_ns: int


def beginning() -> Beginning:
    """Return the present time as the beginning of a run."""
    return Beginning(time.clock_gettime_ns(_CLOCK_REALTIME_COARSE), _ahead_ns())


def since_ns(began: Beginning, ahead_ns: int | None = None) -> int:
    """Return the bound for `is_since`.

    *ahead_ns* is for tests: the value that `beginning` would read now.
    """
    now = _ahead_ns() if ahead_ns is None else ahead_ns
    # If the clock was set back, it is better to name too many files than too few.
    back_ns = began.ahead_ns - now
    return began.coarse_ns - (back_ns if back_ns > _TICK_NS else 0)


def is_since(ctime_ns: int, since: int) -> bool:
    """Return whether an inode with *ctime_ns* may have changed at *since* or later."""
    if ctime_ns >= since:
        return True
    # A file system with whole seconds has cut off the rest.
    return ctime_ns % _SECOND_NS == 0 and ctime_ns > since - _COARSEST_NS


def _ahead_ns() -> int:
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
