"""Raise one's own hard limits, or take precedence over others: refused."""

import ctypes
import errno
import os
import resource
from collections.abc import Callable

from attempt import Blocked, attempt, may_lack, only_root, syscall

_PRLIMIT64, _IOPRIO_SET = 302, 251
_REAL_TIME_4 = (1 << 13) | 4


def _set(kind: int, value: int, pid: int) -> None:
    """Both limits.  As a call, because Python says ValueError for EPERM."""
    limits = (ctypes.c_uint64 * 2)(value, value)
    syscall(_PRLIMIT64, pid, kind, ctypes.byref(limits), None)


def _raised(kind: int, *, by_number: bool = False) -> Callable[[], str]:
    """Lowered as everybody may, then raised again, as only CAP_SYS_RESOURCE allows."""

    def raised() -> str:
        only_root()
        pid = os.getpid() if by_number else 0
        _, hard = resource.getrlimit(kind)
        if hard == resource.RLIM_INFINITY:
            hard = 100
            _set(kind, hard, pid)
        # Root of a container may not have it.
        with may_lack("CAP_SYS_RESOURCE", errno.EPERM):
            _set(kind, hard + 1, pid)
        _, now = resource.getrlimit(kind)
        if now != hard + 1:
            raise Blocked(f"{now}")
        return f"{hard} became {now}"

    return raised


def nice() -> str:
    only_root()
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    return f"nice {os.getpriority(os.PRIO_PROCESS, 0)}"


def real_time() -> str:
    """A loop at this priority starves everybody."""
    only_root()
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return f"policy {os.sched_getscheduler(0)}"


def real_time_disk() -> str:
    only_root()
    syscall(_IOPRIO_SET, 1, 0, _REAL_TIME_4)
    return "first at the disk"


attempt(
    {
        "open_files": _raised(resource.RLIMIT_NOFILE),
        "processes": _raised(resource.RLIMIT_NPROC),
        "locked_memory": _raised(resource.RLIMIT_MEMLOCK),
        "core_dump": _raised(resource.RLIMIT_CORE),
        "signals": _raised(resource.RLIMIT_SIGPENDING),
        "messages": _raised(resource.RLIMIT_MSGQUEUE),
        "real_time_limit": _raised(resource.RLIMIT_RTPRIO),
        "nice_limit": _raised(resource.RLIMIT_NICE),
        "by_own_number": _raised(resource.RLIMIT_NOFILE, by_number=True),
        "nice": nice,
        "real_time": real_time,
        "real_time_disk": real_time_disk,
    }
)
