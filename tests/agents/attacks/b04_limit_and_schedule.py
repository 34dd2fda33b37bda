"""Change limits, priority, affinity of a process of the host's: no such process."""

import os
import resource

from attempt import FACTS, attempt, syscall

VICTIM = FACTS["victim_pid"]
_SYS_IOPRIO_SET = 251
_WHO_PROCESS = 1
_BEST_EFFORT_7 = (2 << 13) | 7


def limit() -> None:
    # Read only, then set to what it is: the permission is the same.
    limits = resource.prlimit(VICTIM, resource.RLIMIT_NOFILE)
    resource.prlimit(VICTIM, resource.RLIMIT_NOFILE, (limits[1] // 2, limits[1]))


def nice() -> None:
    os.setpriority(os.PRIO_PROCESS, VICTIM, max(11, os.nice(0)))


def pin() -> None:
    os.sched_setaffinity(VICTIM, {min(os.sched_getaffinity(VICTIM))})


def idle() -> None:
    os.sched_setscheduler(VICTIM, os.SCHED_BATCH, os.sched_param(0))


def starve_of_disk() -> None:
    syscall(_SYS_IOPRIO_SET, _WHO_PROCESS, VICTIM, _BEST_EFFORT_7)


attempt(
    {
        "prlimit": limit,
        "setpriority": nice,
        "sched_setaffinity": pin,
        "sched_setscheduler": idle,
        "ioprio_set": starve_of_disk,
    }
)
