"""A run's share of the counters that the kernel keeps for its caller, user_namespaces(7).

A task in a user namespace is charged there. In each namespace above, the user who made the one
below is charged (ucounts; Linux 5.14 for the limits of getrlimit(2)). So what a run of an ordinary
user takes is missing for all programs of that user. Each namespace has its own limits on what is
charged through it: those are set here.

Started by root, a run has a uid of its own and is counted separately.
"""

import errno
import os
import resource
from typing import Final

from agentctl_child.sandbox import syscalls, task_table

#: A run gets half; the programs of its user keep the other half.
_SETTINGS: Final = (
    ("max_inotify_instances", "/proc/sys/fs/inotify/max_user_instances"),
    ("max_inotify_watches", "/proc/sys/fs/inotify/max_user_watches"),
)
#: If far more tasks than these are left, tasks are not counted one by one.
_AMPLE_TASKS: Final = 8192


def leave_the_caller(uid: int) -> None:
    """Lower our own limits to the most that a user namespace of ours is to be charged.

    The kernel copies the limits into the namespace when it is made. Everything that is charged
    through it is compared with them, together with what the user has otherwise. For tasks that is
    exact: all runs of a user together leave the reserve. Before Linux 5.14 it has no effect.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    limits = [] if soft == resource.RLIM_INFINITY else [soft - task_table.reserve_of(soft)]
    bound = task_table.tightest(_AMPLE_TASKS)
    if bound is not None:
        # Some of the counted tasks are the user's own. If there is enough room, their number need
        # not be known.
        own = 0 if bound.for_runs > bound.used + _AMPLE_TASKS else task_table.tasks_of(uid)
        limits.append(own + bound.for_runs)
    if limits:
        _set(resource.RLIMIT_NPROC, max(min(limits), 1), hard)
    for kind in (resource.RLIMIT_SIGPENDING, resource.RLIMIT_MSGQUEUE):
        soft, hard = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            _set(kind, soft - soft // 4, hard)


def bound_namespace() -> None:
    """Bound what is charged through our user namespace beside the limits of getrlimit(2).

    Needs CAP_SYS_RESOURCE in it, and a writable /proc.
    """
    for name, of_the_user in _SETTINGS:
        try:
            _write(f"/proc/sys/user/{name}", _half(of_the_user))
        except OSError as error:
            # A kernel without them, or a container that has made the settings read-only.
            if error.errno not in (errno.ENOENT, errno.EROFS):
                raise


def _half(path: str) -> int:
    with open(path, encoding="ascii") as file:
        return max(int(file.read()) // 2, 1)


def _write(path: str, number: int) -> None:
    descriptor = syscalls.call("open", os.open, path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        syscalls.call("sysctl", os.write, descriptor, b"%d" % number)
    finally:
        os.close(descriptor)


def _set(kind: int, soft: int, hard: int) -> None:
    syscalls.call("setrlimit", resource.setrlimit, kind, (soft, hard))
