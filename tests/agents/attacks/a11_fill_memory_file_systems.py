"""Write more than a small amount, and many files, to /tmp, HOME and /dev/shm: no space left."""

import os
import tempfile

from attempt import Impossible, attempt

MUCH = 1 << 30
MANY = 2_000_000


def fill(directory: str) -> str:
    free = os.statvfs(directory)
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        if free.f_bavail * free.f_frsize <= MUCH + (1 << 28) and free.f_blocks * free.f_frsize > (
            MUCH * 2
        ):
            raise Impossible("the disk is nearly full")
        # On tmpfs: checked against the size before a page is taken.
        os.posix_fallocate(file.fileno(), 0, MUCH)
    return f"{MUCH} bytes in {directory}"


attempt(
    {
        "/tmp": lambda: fill("/tmp"),
        "HOME": lambda: fill(os.path.expanduser("~")),
        "/var/tmp": lambda: fill("/var/tmp"),
    }
)
