"""Fill /tmp, HOME and /var/tmp with bytes and with files: the host has none of it."""

import errno
import os
import tempfile

from attempt import FACTS, Blocked, Impossible, attempt, may_lack

MUCH = 3 << 29
MANY = 1_000_000


def fill(directory: str) -> str:
    with (
        tempfile.NamedTemporaryFile(dir=directory) as file,
        may_lack("so much free space", errno.ENOSPC),
    ):
        # On tmpfs this is compared with its size before a page is taken.
        os.posix_fallocate(file.fileno(), 0, MUCH)
    return f"{MUCH} bytes in {directory}"


def many_files(directory: str) -> str:
    """As many as a disk has room for, and memory has not."""
    files = os.statvfs(directory).f_ffree
    if files < MANY and FACTS["level"] == "outside":
        raise Impossible("no room for so many files here, or nobody counts them")
    if files < MANY:
        raise Blocked(f"{files} files at most")
    return f"{files} files"


attempt(
    {
        "/tmp": lambda: fill("/tmp"),
        "HOME": lambda: fill(os.path.expanduser("~")),
        "/var/tmp": lambda: fill("/var/tmp"),
        "files in /tmp": lambda: many_files("/tmp"),
    }
)
