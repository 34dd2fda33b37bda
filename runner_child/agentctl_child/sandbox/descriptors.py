"""The control of a process's descriptors: exactly those that were agreed upon, and no other."""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from typing import Final

from agentctl_child.sandbox import syscalls

_LAST: Final = 0x7FFF_FFFF


def close_all_but(keep: Iterable[int]) -> None:
    """Close every descriptor that is not among ``keep``."""
    first = 0
    kept = sorted(set(keep))
    try:
        for descriptor in kept:
            if descriptor > first:
                syscalls.syscall("close_range", syscalls.CLOSE_RANGE, first, descriptor - 1, 0)
            first = descriptor + 1
        syscalls.syscall("close_range", syscalls.CLOSE_RANGE, first, _LAST, 0)
    except OSError:  # some containers' seccomp profiles do not know the call
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in kept:
                with contextlib.suppress(OSError):
                    os.close(int(name))


@contextlib.contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Yield *descriptor* and close it at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def place(wanted: dict[int, int]) -> None:
    """Make each descriptor available, inheritable, under its new number: ``wanted[new] = old``."""
    # First copy above the targets, or one target may overwrite another's source.
    floor = max(wanted) + 1
    copies = {new: _copy_above(old, floor) for new, old in wanted.items()}
    for new, copy in copies.items():
        os.dup2(copy, new, inheritable=True)
        os.close(copy)


def _copy_above(descriptor: int, floor: int) -> int:
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, floor)
