"""Time limits for tests on a machine that other work shares.

A promise such as "gone within a second" is about what our code does, not about the CPUs that
somebody else has meanwhile.  `TimeLimit` and `Stopwatch` therefore do not count the time in which
tasks of this machine waited for a CPU: on an idle machine they are exact, on a busy one a test
fails for what was slow and not for what was busy.
"""

import time
from typing import Final

_MOST: Final = 10
_MOST_S: Final = 60.0
"""A machine can be busy for ever: a limit is extended by no more than this, and to no more than
that multiple of it."""


def contended_s() -> float:
    """For how long, since boot, tasks of this machine have waited for a CPU.

    The line "some" of /proc/pressure/cpu (Linux 4.20), an average over the CPUs; 0 where the
    kernel does not tell, so that every limit is then a plain one.
    """
    try:
        with open("/proc/pressure/cpu", encoding="ascii") as file:
            return int(file.readline().rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return 0.0


class Stopwatch:
    """Measures the time since it was made."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._contended_s = contended_s()

    def __repr__(self) -> str:
        return f"<Stopwatch {self.elapsed_s:.3f} s, of them {self.uncontended_s:.3f} s uncontended>"

    @property
    def elapsed_s(self) -> float:
        """All of it."""
        return time.monotonic() - self._began_s

    @property
    def uncontended_s(self) -> float:
        """What of it counts: the rest was spent waiting for a CPU."""
        elapsed_s = self.elapsed_s
        waited_s = min(contended_s() - self._contended_s, _MOST_S)
        return max(elapsed_s - waited_s, elapsed_s / _MOST)


class TimeLimit:
    """A number of seconds from now."""

    def __init__(self, within_s: float) -> None:
        self._within_s = within_s
        self._watch = Stopwatch()

    @property
    def left_s(self) -> float:
        """How many of them are left; 0 or less when they are over."""
        return self._within_s - self._watch.uncontended_s
