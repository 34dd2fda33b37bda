"""Reads what is in files that a run may have made: only regular ones, and only so much.

A FIFO would hold its reader up for good, and a device can do anything.
"""

import os
import stat
from typing import Final

_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def beginning(path: str, most: int) -> bytes | None:
    """The first *most* bytes of the regular file *path*; None if it is none, or not readable."""
    try:
        fd = os.open(path, _FLAGS)
    except OSError:
        return None
    try:
        # Of the very file that is then read.
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        with open(fd, "rb", closefd=False) as file:
            return file.read(most)
    except OSError:
        return None
    finally:
        os.close(fd)
