"""What the kernel lets this process have, where that decides whether runs can be stopped.

A run may use up what it shares with us.  So the processes of agentctl that hold runs take all
descriptors that they may have, and stand last when memory is used up.
"""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_OOM_SCORE: Final = "/proc/self/oom_score_adj"
_LAST: Final = -900
_RESERVE: Final = 64
"""Descriptors that no new run gets: those for clients, pidfds and /proc while runs are stopped."""

_callers_soft: int | None = None


def take_all() -> None:
    """Raise our soft limit on descriptors to the hard one; be killed last, where we may be root.

    For a process that is agentctl's own; a program that embeds a supervisor stays as it is.
    """
    global _callers_soft
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _callers_soft is None:
        _callers_soft = soft
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.suppress(OSError, ValueError):  # it takes CAP_SYS_RESOURCE (proc(5))
        if int(Path(_OOM_SCORE).read_text()) > _LAST:
            Path(_OOM_SCORE).write_text(str(_LAST))


def soft_descriptors() -> int:
    """The soft limit on descriptors of whoever started us, which is also that of runs."""
    if _callers_soft is not None:
        return _callers_soft
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def leaves_a_reserve(newest: int) -> bool:
    """Whether, with *newest* open, there are descriptors left for the runs that we have.

    The kernel gives the lowest number that is free.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft == resource.RLIM_INFINITY or newest < soft - min(_RESERVE, soft // 4)


@contextlib.contextmanager
def sending_more() -> Iterator[None]:
    """Let this process have as many descriptors in flight as its hard limit allows, meanwhile.

    The kernel holds what a user has on the way against the soft limit of whoever sends more
    (unix(7), ETOOMANYREFS).
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
