"""Sets the limits of this process that it needs to be able to stop runs.

A run may use up the resources that it shares with us.  So the agentctl processes that hold runs
raise their descriptor limit as far as allowed, and ask the kernel to kill them last when memory
is used up.
"""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_OOM_SCORE: Final = "/proc/self/oom_score_adj"
_LAST: Final = -900
_RESERVE: Final = 64
"""Descriptors that no new run gets.

They are kept for clients, pidfds and /proc while runs are stopped.
"""

_callers_soft: int | None = None


def take_all() -> None:
    """Raise our soft limit on descriptors to the hard one; if allowed, lower our OOM score.

    Call this only in agentctl's own processes, not in a program that embeds a supervisor.
    """
    global _callers_soft
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if _callers_soft is None:
        _callers_soft = soft
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.suppress(OSError, ValueError):  # it needs CAP_SYS_RESOURCE (proc(5))
        if int(Path(_OOM_SCORE).read_text()) > _LAST:
            Path(_OOM_SCORE).write_text(str(_LAST))


def soft_descriptors() -> int:
    """Return the soft limit on descriptors that we were started with.  Runs get the same one."""
    if _callers_soft is not None:
        return _callers_soft
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def leaves_a_reserve(newest: int) -> bool:
    """Return True if enough descriptors for the live runs are left when *newest* is open.

    The kernel gives the lowest free number, so *newest* shows how many are in use.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft == resource.RLIM_INFINITY or newest < soft - min(_RESERVE, soft // 4)


@contextlib.contextmanager
def sending_more() -> Iterator[None]:
    """Allow this process, during the block, as many descriptors in flight as its hard limit.

    When a process sends a descriptor, the kernel compares the number that the user has in flight
    with the soft limit of the sender (unix(7), ETOOMANYREFS).
    """
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
