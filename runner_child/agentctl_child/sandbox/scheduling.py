"""The order of processes when the CPUs are short: sched(7), timer slack, autogroups.

A run that wakes up again and again must not keep its keepers from the CPU. Within one group of the
scheduler, only SCHED_IDLE ensured that in every try; nice and SCHED_BATCH did not (docs/adr/0011).
If the kernel makes every session a group of its own (autogroup), a class counts only within the
group. Then the whole group is made lighter instead.
"""

import contextlib
import errno
import os
from typing import Final

from agentctl_child.sandbox import prctl, syscalls

_SLACK_NS: Final = 1_000_000
#: As nice: a tenth of the share of another session. At 5, timerfd storms starved other processes.
_SESSION_NICE: Final = b"10"


def lower() -> None:
    """Put this thread, and all that it starts, below everything that is not idle.

    Without CAP_SYS_NICE or RLIMIT_NICE this cannot be undone.
    """
    syscalls.call("sched_setscheduler", os.sched_setscheduler, 0, os.SCHED_IDLE, os.sched_param(0))


def is_lowered(pid: int) -> bool:
    """Return True if the kernel says that a process is below those that are not idle."""
    return os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK == os.SCHED_IDLE


def coarsen_timers() -> None:
    """Let this process, and all that it starts, sleep up to 1 ms longer.

    Many of them then wake up together. This covers nanosleep, poll, select, epoll_wait and futex,
    not timerfd, setitimer, timer_create.
    """
    prctl.set_timer_slack(_SLACK_NS)


def hasten() -> None:
    """Put this process, but not its forks, above all that are not real-time; needs root."""
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))


def lighten_session(pid: int, parent: int) -> bool:
    """Make the autogroup of a child of ``parent`` lighter; return False if it must be tried again.

    The kernel accepts one such write in 100 ms from all ordinary users together.
    """
    try:
        # The directory still means this process when the number means another one.
        directory = os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        stat = _read(directory, "stat")
        if int(stat[stat.rindex(b")") + 2 :].split()[1]) == parent:
            _write(directory, "autogroup", _SESSION_NICE)
    except OSError as error:
        return error.errno != errno.EAGAIN  # otherwise it is gone, or this kernel has no autogroups
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
