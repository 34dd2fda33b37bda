"""What the kernel lets each process of a run have: getrlimit(2)."""

import os
import resource
from typing import Final

from agentctl_child.sandbox import syscalls

#: Bombs of up to this size are swept in under a second; with 2,000 there was no end in sight.
PROCESSES_PER_RUN: Final = 256
#: The same where a pid namespace ends any bomb at once.
PROCESSES_IN_A_NAMESPACE: Final = 4096
NO_DUMP: Final = 1
#: Most that a process may raise itself to; lower limits of the caller's stay.
_CEILINGS: Final = {
    resource.RLIMIT_NOFILE: 65_536,
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


def core_limit() -> int:
    """How large a core dump may be."""
    return resource.getrlimit(resource.RLIMIT_CORE)[0]


def _set(kind: int, soft: int, hard: int) -> None:
    if resource.getrlimit(kind) != (soft, hard):
        syscalls.call("setrlimit", resource.setrlimit, kind, (soft, hard))


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


def tasks_of(uid: int) -> int:
    """How many tasks a uid has now: RLIMIT_NPROC counts threads, on the whole machine."""
    count = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/status", "rb") as file:
                status = file.read()
        except OSError:
            continue
        owner, threads = _field(status, b"\nUid:\t"), _field(status, b"\nThreads:\t")
        if owner == uid:
            count += threads or 1
    return count


def _field(status: bytes, name: bytes) -> int | None:
    _, found, rest = status.partition(name)
    return int(rest.split(None, 1)[0]) if found else None
