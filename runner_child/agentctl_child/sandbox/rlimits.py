"""The resource limits of each process of a run: getrlimit(2)."""

import resource
from typing import Final

from agentctl_child.sandbox import syscalls, task_table

#: Fork bombs of up to this size are swept in under a second; with 2,000 the sweep did not end.
PROCESSES_PER_RUN: Final = 256
#: The same if a pid namespace ends any fork bomb at once.
PROCESSES_IN_A_NAMESPACE: Final = 4096
NO_DUMP: Final = 1
#: With fewer, neither init nor an agent's channel could exist.
FEWEST_PROCESSES: Final = 8
_DESCRIPTORS: Final = 65_536
_FEWEST_DESCRIPTORS: Final = 256
#: The highest values that a process may set; lower limits of the caller stay.
_CEILINGS: Final = {
    resource.RLIMIT_MEMLOCK: 8 << 20,  # the kernel's own default since Linux 5.16
    resource.RLIMIT_MSGQUEUE: 819_200,  # its default
    resource.RLIMIT_SIGPENDING: 4096,
    resource.RLIMIT_RTPRIO: 0,
    resource.RLIMIT_NICE: 0,
}


def bound_everything() -> None:
    """Lower the soft and hard limits whose excess would burden the whole machine.

    Core dumps: none. The value is 1 and not 0. A kernel that pipes dumps to a program
    (core_pattern "|...") runs that program in spite of 0, and only does not at 1 (core(5)). As the
    size of a file, 1 is too small for any dump. A program that gets dumps by socket (core_pattern
    "@...", Linux 6.16) is asked in any case: `core_dumps` leaves it nothing to read.
    """
    _set(resource.RLIMIT_CORE, NO_DUMP, NO_DUMP)
    for kind, ceiling in _CEILINGS.items():
        soft, hard = resource.getrlimit(kind)
        hard = ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)
        _set(kind, hard if soft == resource.RLIM_INFINITY else min(soft, hard), hard)


def raise_own_descriptors() -> None:
    """Let this process open and send as many descriptors as its hard limit permits."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _set(resource.RLIMIT_NOFILE, hard, hard)


def bound_descriptors(soft: int | None, *, processes: int | None = None) -> None:
    """Let each process of a run have fewer descriptors than its keepers.

    The number of open files is not the only reason. The kernel refuses to send a descriptor
    (ETOOMANYREFS) if more descriptors of the same user are in flight than the sender's own
    RLIMIT_NOFILE (unix(7)). A run that has sent all that it can therefore leaves the rest, a
    quarter, to its keepers and their supervisor.

    ``soft``: the caller's value, which may differ from the raised value of its keepers.
    ``processes``: so many processes together may not take half of the machine's files
    (fs.file-max), if keepers need files of their own to end a run.
    """
    own_soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = _DESCRIPTORS
    hard = min(hard - hard // 4, _DESCRIPTORS)
    if processes is not None:
        with open("/proc/sys/fs/file-max", encoding="ascii") as file:
            hard = min(hard, max(int(file.read()) // 2 // processes, _FEWEST_DESCRIPTORS))
    wanted = own_soft if soft is None else soft
    _set(resource.RLIMIT_NOFILE, min(hard if wanted < 0 else wanted, hard), hard)


def core_limit() -> int:
    """Return the maximum size of a core dump."""
    return resource.getrlimit(resource.RLIMIT_CORE)[0]


def _set(kind: int, soft: int, hard: int) -> None:
    if resource.getrlimit(kind) != (soft, hard):
        syscalls.call("setrlimit", resource.setrlimit, kind, (soft, hard))


def process_share(bound: task_table.Bound | None, promised: int | None) -> int:
    """Return how many tasks one more run may have. Pure.

    ``bound`` is the limit on all tasks of which the least is left. ``promised`` is what earlier
    runs may still take of it. A new run gets at most half of the rest; when there are many runs,
    each still gets a few. None: the kernel bounds all of them together.
    """
    if bound is None:
        return PROCESSES_IN_A_NAMESPACE
    share = max(bound.for_runs, 0)
    if promised is not None:
        share = max((share - promised) // 2, min(share, PROCESSES_PER_RUN))
    return min(share, PROCESSES_IN_A_NAMESPACE)


def limit_processes(limit: int) -> None:
    """Allow at most ``limit`` tasks for our uid, counted by the kernel at each fork."""
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    syscalls.call("setrlimit", resource.setrlimit, resource.RLIMIT_NPROC, (limit, limit))


def process_limit() -> int | None:
    """Return the limit in force; None if there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return None if soft == resource.RLIM_INFINITY else soft
