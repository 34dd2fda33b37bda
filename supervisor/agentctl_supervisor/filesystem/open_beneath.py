"""Opens what lies beneath a directory, and follows no link on the way: openat2(2).

The kernel checks the whole path in one step, so nobody can put a link in the middle of it
between our look and our use.  In Linux since 5.6; where a filter of system calls around us
does not let it through, each component is opened by itself, which is slower and as strict.
"""

import errno
import os
import struct
from collections.abc import Callable
from functools import cache
from typing import Final

_SYS_OPENAT2: Final = 437  # the same on every architecture
_AT_FDCWD: Final = -100
_RESOLVE_NO_XDEV: Final = 0x01
_RESOLVE_NO_MAGICLINKS: Final = 0x02
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_BENEATH: Final = 0x08
_NO_LINKS: Final = _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
_OPEN_HOW: Final = struct.Struct("=QQQ")  # flags, mode, resolve
_BENEATH: Final = _NO_LINKS | _RESOLVE_BENEATH | _RESOLVE_NO_XDEV

#: Never blocks, not even on a FIFO, and gives nobody a terminal.
READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY: Final = READ | os.O_DIRECTORY
#: A handle that neither reads nor writes, so that opening it does nothing to what is there.
HANDLE: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_root(path: bytes) -> int:
    """The directory *path*, which is absolute and without a symbolic link anywhere.

    Raises:
        OSError: ELOOP if there is a link after all; ENOTDIR, ENOENT, EACCES.
    """
    fd = _openat2(_AT_FDCWD, path, _DIRECTORY, _NO_LINKS)
    if fd is not None:
        return fd
    slash = os.open(b"/", HANDLE | os.O_DIRECTORY)
    try:
        return _by_component(slash, path.strip(b"/") or b".", _DIRECTORY, same_device=False)
    finally:
        os.close(slash)


def open_directory(root: int, path: bytes) -> int:
    """The directory *path* beneath *root*, to be listed; *path* may be ``.``.

    Raises:
        OSError: ELOOP for a link, EXDEV for a mount or a way out, ENOTDIR, ENOENT, EACCES.
    """
    return open_beneath(root, path, _DIRECTORY)


def open_beneath(root: int, path: bytes, flags: int) -> int:
    """What is at the relative *path*, on the mount and beneath the directory of *root*.

    Raises:
        OSError: as `open_directory` does.
    """
    if path.startswith(b"/") or b".." in path.split(b"/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    fd = _openat2(root, path, flags, _BENEATH)
    return fd if fd is not None else _by_component(root, path, flags, same_device=True)


@cache
def _call() -> Callable[[int, bytes, bytes], int]:
    """The system call: the descriptor, or the negative number of the error."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    def openat2(directory: int, path: bytes, how: bytes) -> int:
        fd: int = libc.syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_long(directory),
            path,
            how,
            ctypes.c_size_t(len(how)),
        )
        return fd if fd >= 0 else -ctypes.get_errno()

    return openat2


def _openat2(directory: int, path: bytes, flags: int, resolve: int) -> int | None:
    """The descriptor, or None where the call itself is not to be had."""
    if b"\0" in path:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    how = _OPEN_HOW.pack(flags, 0, resolve)
    while (fd := _call()(directory, path, how)) < 0:
        if -fd in (errno.ENOSYS, errno.EPERM):
            return None
        if -fd != errno.EINTR:
            raise OSError(-fd, os.strerror(-fd))
    return fd


def _by_component(root: int, path: bytes, flags: int, *, same_device: bool) -> int:
    *parents, last = [part for part in path.split(b"/") if part] or [b"."]
    at = os.dup(root)
    try:
        for name in parents:
            below = os.open(name, HANDLE | os.O_DIRECTORY, dir_fd=at)
            os.close(at)
            at = below
        fd = os.open(last, flags | os.O_NOFOLLOW, dir_fd=at)
        if same_device and os.fstat(fd).st_dev != os.fstat(root).st_dev:
            os.close(fd)
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return fd
    finally:
        os.close(at)
