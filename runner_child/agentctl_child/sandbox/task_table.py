"""The number of tasks (processes and threads) that this machine can still make, and its limits.

Three counters are shared by all processes: the numbers of our pid namespace (``kernel.pid_max``, a
namespace's own since Linux 6.14), ``kernel.threads-max``, and ``pids.max`` of each control group
above us. They are only read here; `rlimits` sets what a run gets of them.
"""

import contextlib
import functools
import os
import resource
from typing import Final, NamedTuple

from agentctl_child.sandbox import mountinfo

#: Inode of the pid namespace that the machine was started with (PROC_PID_INIT_INO).
_FIRST_PID_NAMESPACE: Final = 0xEFFF_FFFC
_LARGEST_RESERVE: Final = 512
_SMALLEST_RESERVE: Final = 16


class Bound(NamedTuple):
    """A limit on tasks: its name, its value, and the number of tasks that count against it."""

    name: str
    limit: int
    used: int

    @property
    def left(self) -> int:
        """The number of tasks that may still be made."""
        return self.limit - self.used

    @property
    def for_runs(self) -> int:
        """The tasks that runs may have: ``left`` without the reserve that a stop needs."""
        return self.left - reserve_of(self.limit)


def reserve_of(limit: int) -> int:
    """Return the tasks that no run gets: for keepers, the caller's shell and ``agentctl stop``."""
    return max(_SMALLEST_RESERVE, min(_LARGEST_RESERVE, limit // 8))


def bounds(ample: int = 0) -> list[Bound]:
    """Return all bounds that are in force.

    If more than ``ample`` tasks are left by the first estimate of what a pid namespace holds,
    tasks are not counted one by one.
    """
    found = []
    total = _all_tasks()
    if (limit := _number("/proc/sys/kernel/threads-max")) is not None:
        found.append(Bound("kernel.threads-max", limit, total))
    if (limit := _number("/proc/sys/kernel/pid_max")) is not None:
        used = total
        # The total is the whole machine's: too high for a namespace below the first one.
        if limit - total <= ample and not _is_first_namespace():
            used = _tasks_in_sight()
        found.append(Bound("kernel.pid_max", limit, used))
    for name, directory in _groups():
        with contextlib.suppress(OSError, ValueError):
            limit, used = (int(_read(f"{directory}/pids.{word}")) for word in ("max", "current"))
            found.append(Bound(name, limit, used))
    return found


def tightest(ample: int = 0) -> Bound | None:
    """Return the bound that leaves the least for runs; None if the kernel reports none."""
    return min(bounds(ample), key=lambda bound: bound.for_runs, default=None)


def nearest(uid: int) -> Bound | None:
    """Return the bound that a fork of a process of ``uid`` has most probably met just now."""
    found = bounds(ample=_LARGEST_RESERVE)
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if uid and soft != resource.RLIM_INFINITY:  # the kernel does not count root's
        found.append(Bound("ulimit -u, less what runs must leave,", soft, tasks_of(uid)))
    return min(found, key=lambda bound: bound.left, default=None)


def tasks_of(uid: int) -> int:
    """Return how many tasks a uid has now: RLIMIT_NPROC counts threads, on the whole machine."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}").st_uid == uid or _uid_of(name) == uid:
                    count += _threads_of(name)
    return count


def _uid_of(pid: str) -> int:
    # In /proc, a process that is not dumpable belongs to root (proc_pid(5)).
    with open(f"/proc/{pid}/status", "rb") as file:
        _, _, rest = file.read().partition(b"\nUid:\t")
    return int(rest.split(None, 1)[0])


def _threads_of(pid: str) -> int:
    # The links of a directory: itself, its entry, and one for each directory in it.
    return os.stat(f"/proc/{pid}/task").st_nlink - 2


def _tasks_in_sight() -> int:
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                count += _threads_of(name)
    return count


def _all_tasks() -> int:
    """Return the number of all tasks of the machine, counted by the kernel (proc_loadavg(5))."""
    try:
        return int(_read("/proc/loadavg").split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def _is_first_namespace() -> bool:
    try:
        return os.stat("/proc/self/ns/pid").st_ino == _FIRST_PID_NAMESPACE
    except OSError:
        return False


@functools.cache
def _groups() -> tuple[tuple[str, str], ...]:
    """Return the control groups around us that may bound tasks: the bound's name, and the path.

    We stay in the group that we were started in.
    """
    found = []
    with contextlib.suppress(OSError):
        for line in _read("/proc/self/cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            for mount in mountinfo.mounts():
                if _is_of(mount, controllers):
                    top, place = os.fsdecode(mount.root), os.fsdecode(mount.place)
                    below = os.path.relpath(path, top)
                    # The mount may begin below the group, or our namespace above it.
                    group = place if below.startswith("..") else os.path.join(place, below)
                    while group.startswith(place):
                        group = os.path.normpath(group)
                        found.append((f"pids.max of the control group {group}", group))
                        group = os.path.dirname(group)
                    break
    return tuple((name, path) for name, path in found if os.path.exists(f"{path}/pids.max"))


def _is_of(mount: mountinfo.Mount, controllers: str) -> bool:
    if not controllers:
        return mount.kind == b"cgroup2"
    return (
        mount.kind == b"cgroup"
        and "pids" in controllers.split(",")
        and (b"pids" in os.path.basename(mount.place).split(b","))
    )


def _number(path: str) -> int | None:
    try:
        return int(_read(path))
    except (OSError, ValueError):
        return None


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()
