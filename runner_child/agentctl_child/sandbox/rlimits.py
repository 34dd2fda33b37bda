"""What the kernel lets each process of a run have: getrlimit(2)."""

import resource
from typing import Final

from agentctl_child.sandbox import syscalls, task_table

#: Bombs of up to this size are swept in under a second; with 2,000 there was no end in sight.
PROCESSES_PER_RUN: Final = 256
#: The same where a pid namespace ends any bomb at once.
PROCESSES_IN_A_NAMESPACE: Final = 4096
NO_DUMP: Final = 1
#: With fewer, neither init nor an agent's channel could be.
FEWEST_PROCESSES: Final = 8
_DESCRIPTORS: Final = 65_536
_FEWEST_DESCRIPTORS: Final = 256
#: Most that a process may raise itself to; lower limits of the caller's stay.
_CEILINGS: Final = {
    resource.RLIMIT_MEMLOCK: 8 << 20,  # the kernel's own default since Linux 5.16
    resource.RLIMIT_MSGQUEUE: 819_200,  # its default
    resource.RLIMIT_SIGPENDING: 4096,
    resource.RLIMIT_RTPRIO: 0,
    resource.RLIMIT_NICE: 0,
}


def bound_everything() -> None:
    """Lower the limits whose excess would be the machine's to bear, soft and hard.

    Core dumps: none.  The value 1 and not 0, because a kernel that pipes dumps to a program
    (core_pattern "|...") asks that program in spite of 0, and only not at 1 (core(5)); as the size
    of a file it is too small for any dump.  A program that the kernel gives dumps by socket
    (core_pattern "@...", Linux 6.16) is asked all the same: `core_dumps` leaves it nothing to read.
    """
    _set(resource.RLIMIT_CORE, NO_DUMP, NO_DUMP)
    for kind, ceiling in _CEILINGS.items():
        soft, hard = resource.getrlimit(kind)
        hard = ceiling if hard == resource.RLIM_INFINITY else min(hard, ceiling)
        _set(kind, hard if soft == resource.RLIM_INFINITY else min(soft, hard), hard)


def raise_own_descriptors() -> None:
    """Let this process open, and send, as many descriptors as it may raise itself to."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _set(resource.RLIMIT_NOFILE, hard, hard)


def bound_descriptors(soft: int | None, *, processes: int | None = None) -> None:
    """Let each process of a run have fewer descriptors than its keepers.

    Not only for their number: whoever sends a descriptor is refused (ETOOMANYREFS) once more
    than its own RLIMIT_NOFILE of the same user's are on their way (unix(7)).  A run that has
    sent all that it can leaves its keepers and their supervisor the rest, a quarter.

    ``soft``: as the caller has it, which need not be what its keepers were raised to.
    ``processes``: so many of them may not take half of the machine's together (fs.file-max),
    where keepers need files of their own to end a run.
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
    """How large a core dump may be."""
    return resource.getrlimit(resource.RLIMIT_CORE)[0]


def _set(kind: int, soft: int, hard: int) -> None:
    if resource.getrlimit(kind) != (soft, hard):
        syscalls.call("setrlimit", resource.setrlimit, kind, (soft, hard))


def process_share(bound: task_table.Bound | None, promised: int | None) -> int:
    """How many tasks one more run may have.  Pure.

    ``bound`` is the limit on all tasks of which the least is left.  ``promised`` is what the
    runs before may still take of it: of the rest each gets at most the half, until there are
    so many that each is given a few.  None: the kernel bounds all of them together.
    """
    if bound is None:
        return PROCESSES_IN_A_NAMESPACE
    share = max(bound.for_runs, 0)
    if promised is not None:
        share = max((share - promised) // 2, min(share, PROCESSES_PER_RUN))
    return min(share, PROCESSES_IN_A_NAMESPACE)


def limit_processes(limit: int) -> None:
    """No more than ``limit`` tasks for our uid, counted by the kernel at each fork."""
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    syscalls.call("setrlimit", resource.setrlimit, resource.RLIMIT_NPROC, (limit, limit))


def process_limit() -> int | None:
    """The limit in force; None if there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    return None if soft == resource.RLIM_INFINITY else soft
