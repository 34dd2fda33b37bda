"""Which change times (ctime) mean "since the run began".

The kernel stamps inodes with its coarse clock, which lags behind by up to a tick (10 ms), so
the beginning is read from that same clock: what was changed afterwards is never older.  What
was changed in the very tick of the beginning counts as changed, too.  (Linux 6.13 and newer may
stamp more finely, never below that clock: then the tick before counts, too.)
"""

import time
from typing import Final, NamedTuple

_CLOCK_REALTIME_COARSE: Final = 5  # clock_gettime(2), 2.6.32; Python has no name for it
_TICK_NS: Final = 10_000_000
_SECOND_NS: Final = 1_000_000_000
_COARSEST_NS: Final = 2 * _SECOND_NS
"""FAT counts in steps of two seconds, ext3 in whole ones."""


class Beginning(NamedTuple):
    """When a run began: wall time of inodes, and what the wall clock was ahead of time since boot.

    The latter tells whether somebody set the clock back; suspending the machine does not.
    """

    coarse_ns: int
    ahead_ns: int


def beginning() -> Beginning:
    """Now."""
    return Beginning(time.clock_gettime_ns(_CLOCK_REALTIME_COARSE), _ahead_ns())


def since_ns(began: Beginning, ahead_ns: int | None = None) -> int:
    """The bound for `is_since`.  *ahead_ns* is for tests: what `beginning` would read now."""
    now = _ahead_ns() if ahead_ns is None else ahead_ns
    # A clock that was set back: better to name too many than too few.
    back_ns = began.ahead_ns - now
    return began.coarse_ns - (back_ns if back_ns > _TICK_NS else 0)


def is_since(ctime_ns: int, since: int) -> bool:
    """Whether an inode with *ctime_ns* was changed at *since* or later, as far as one can know."""
    if ctime_ns >= since:
        return True
    # A file system that keeps whole seconds only has cut off the rest.
    return ctime_ns % _SECOND_NS == 0 and ctime_ns > since - _COARSEST_NS


def _ahead_ns() -> int:
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
