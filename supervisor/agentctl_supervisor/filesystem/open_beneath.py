"""Open files beneath a directory and follow no link on the way: openat2(2).

The kernel checks the whole path in one step, so no process can put a link into the path between
the check and the use.  openat2(2) exists since Linux 5.6.  If it is missing, or a system call
filter around this process refuses it, each component is opened by itself.  That is slower and
equally strict.
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

#: These flags never block, not even on a FIFO, and give no process a controlling terminal.
READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_DIRECTORY: Final = READ | os.O_DIRECTORY
#: A handle that neither reads nor writes, so that opening it has no effect on the file.
HANDLE: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_root(path: bytes) -> int:
    """Open the directory *path*, which must be absolute and have no symbolic link in it.

    Raises:
        OSError: ELOOP if there is a link; ENOTDIR, ENOENT, EACCES.
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
    """Open the directory *path* beneath *root* for listing; *path* may be ``.``.

    Raises:
        OSError: ELOOP for a link, EXDEV for another mount or a path that leads out of *root*,
            ENOTDIR, ENOENT, EACCES.
    """
    return open_beneath(root, path, _DIRECTORY)


def open_beneath(root: int, path: bytes, flags: int) -> int:
    """Open the relative *path* beneath the directory *root* and on the same mount.

    Raises:
        OSError: the same as `open_directory`.
    """
    if path.startswith(b"/") or b".." in path.split(b"/"):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    fd = _openat2(root, path, flags, _BENEATH)
    return fd if fd is not None else _by_component(root, path, flags, same_device=True)


@cache
def _call() -> Callable[[int, bytes, bytes], int]:
    """Return the system call, which returns the descriptor or the negative errno."""
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
    """Return the descriptor, or None if the system call is not available."""
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
