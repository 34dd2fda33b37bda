"""Who runs first when the CPUs are short: sched(7), timer slack, autogroups.

A run that wakes up again and again must not keep its keepers from the CPU.  Only SCHED_IDLE
held that in every try within one group of the scheduler; nice and SCHED_BATCH did not
(docs/adr/0011).  Where the kernel makes every session a group of its own (autogroup), a
class counts within the group only, and the whole group is made lighter instead.
"""

import contextlib
import errno
import os
from typing import Final

from agentctl_child.sandbox import prctl, syscalls

_SLACK_NS: Final = 1_000_000
#: As nice: a tenth of the share of another session.  At 5, timerfd storms starved others.
_SESSION_NICE: Final = b"10"


def lower() -> None:
    """Put this thread, and all that it starts, below everything that is not idle.

    Without CAP_SYS_NICE or RLIMIT_NICE there is no way back.
    """
    syscalls.call("sched_setscheduler", os.sched_setscheduler, 0, os.SCHED_IDLE, os.sched_param(0))


def is_lowered(pid: int) -> bool:
    """Whether a process is below those that are not idle, as the kernel says."""
    return os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK == os.SCHED_IDLE


def coarsen_timers() -> None:
    """Let this process, and all that it starts, sleep up to 1 ms longer, many waking up at once.

    Covers nanosleep, poll, select, epoll_wait and futex, not timerfd, setitimer, timer_create.
    """
    prctl.set_timer_slack(_SLACK_NS)


def hasten() -> None:
    """Put this process above all that are not real-time, but not what it forks; needs root."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def lighten_session(pid: int, parent: int) -> bool:
    """Make the autogroup of a child of ``parent`` lighter; False: it has to be tried again.

    The kernel takes one such write in 100 ms from all ordinary users together.
    """
    try:
        # The directory goes on meaning this process when the number means another one.
        directory = os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        stat = _read(directory, "stat")
        if int(stat[stat.rindex(b")") + 2 :].split()[1]) == parent:
            _write(directory, "autogroup", _SESSION_NICE)
    except OSError as error:
        return error.errno != errno.EAGAIN  # else it is gone, or this kernel has no autogroups
    finally:
        os.close(directory)
    return True


def _read(directory: int, name: str) -> bytes:
    descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def _write(directory: int, name: str, data: bytes) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
