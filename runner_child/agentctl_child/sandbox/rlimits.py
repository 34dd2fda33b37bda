"""How many processes a run may have where no cgroup counts them."""

import os
import resource
from typing import Final

#: Bombs of up to this size are swept in under a second; with 2,000 there was no end in sight.
PROCESSES_PER_RUN: Final = 256


def limit_processes(limit: int) -> None:
    """No more than ``limit`` tasks for our uid, counted by the kernel at each fork."""
    resource.setrlimit(resource.RLIMIT_NPROC, (limit, limit))


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
