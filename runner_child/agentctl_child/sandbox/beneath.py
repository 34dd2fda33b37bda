"""The opening of paths without following symbolic links: openat2(2), Linux 5.6.

No component of a path is followed if it is a symbolic link. A process that can write to a
directory on the way can therefore not choose what we open.
"""

import errno
import os
import struct
from typing import Final

from agentctl_child.sandbox import syscalls

_HERE: Final = -100  # AT_FDCWD
_NO_SYMLINKS: Final = 0x04
_NO_MAGIC_LINKS: Final = 0x02
_BENEATH: Final = 0x08
_TRIES: Final = 100


def open_place(path: bytes) -> int:
    """Return an O_PATH descriptor of an absolute path that has no symbolic link on it.

    Raises OSError; ELOOP means that there is a link.
    """
    return _open(_HERE, path, os.O_PATH, _NO_SYMLINKS | _NO_MAGIC_LINKS)


def open_beneath(directory: int, path: bytes) -> int:
    """Return an O_PATH descriptor of a relative path that does not leave a directory.

    As `open_place`, no symbolic link is followed.
    """
    return _open(directory, path, os.O_PATH, _NO_SYMLINKS | _NO_MAGIC_LINKS | _BENEATH)


def _open(directory: int, path: bytes, flags: int, resolve: int) -> int:
    # struct open_how: flags, mode, resolve. Not O_NOFOLLOW: with O_PATH it would open a link at
    # the end of the path instead of failing.
    how = struct.pack("=3Q", flags | os.O_CLOEXEC, 0, resolve)
    for left in reversed(range(_TRIES)):
        try:
            return syscalls.syscall("openat2", syscalls.OPENAT2, directory, path, how, len(how))
        except OSError as error:
            # Something on the way was renamed meanwhile, so the kernel is not sure of the result.
            if error.errno != errno.EAGAIN or not left:
                raise
    raise AssertionError("unreachable")
