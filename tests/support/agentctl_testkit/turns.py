"""Tests that use up what a whole user or machine shares run alone; all others run side by side.

The kernel counts processes, descriptors in flight, watches and more for each user, and a CPU is
everybody's.  A fork bomb of one test would refuse a fork to the run of another, which is no fault
of either.  So every test holds a lock together with the others while it runs, and one that is
marked ``alone`` holds it by itself.  The locks are files of the machine, for flock(2), so that
they work between the workers of a suite, between two suites, and between users; they end with the
process that holds them.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import Final

_ROOM: Final = "/tmp/agentctl-tests.room"
_DOOR: Final = "/tmp/agentctl-tests.door"
"""Held by whoever goes in: one that waits to be alone keeps it, or others would go in for ever."""


@contextlib.contextmanager
def turn(*, alone: bool) -> Iterator[None]:
    """Wait until no other test runs that is or wants to be *alone*, and keep those out."""
    room = _lock_file(_ROOM)
    try:
        door = _lock_file(_DOOR)
        try:
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            os.close(door)
        yield
    finally:
        os.close(room)


def _lock_file(path: str) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    # Not O_CREAT on one that is there: fs.protected_regular refuses that of another's file, even
    # to root (proc_sys_fs(5)).
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o444))
    return os.open(path, flags)
