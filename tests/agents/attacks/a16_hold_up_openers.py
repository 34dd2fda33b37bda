"""Have whoever opens a file wait, by a lease on it or a FIFO in its place: refused."""

import contextlib
import errno
import fcntl
import os
import signal
import stat
import struct
from collections.abc import Callable

from attempt import FACTS, attempt, may_lack, only_root, syscall

CONFIG = f"{FACTS['workspace']}/.git/config"
INDEX = f"{FACTS['workspace']}/.git/index"
_SYS_FCNTL = 72
_F_NOTIFY = 1026
_F_SETDELEG = 1040
_DN_CREATE = 4
_IN_UPPER_HALF = 1 << 32


def held(path: str, take: Callable[[int], object]) -> None:
    """Take something of a file, and see that another one's open would have to wait."""
    # A lease is broken by SIGIO, which kills whoever does not expect it.
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    descriptor = os.open(path, os.O_RDONLY)
    take(descriptor)
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BlockingIOError):
            os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, "it did not have to wait"


def lease(path: str) -> None:
    held(path, lambda descriptor: fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK))


def lease_by_another_number() -> None:
    # The C library's fcntl(3) takes the command for an int, and the kernel's its lower half.
    command = _IN_UPPER_HALF | fcntl.F_SETLEASE
    held(CONFIG, lambda descriptor: syscall(_SYS_FCNTL, descriptor, command, fcntl.F_WRLCK))


def read_lease() -> None:
    descriptor = os.open(CONFIG, os.O_RDONLY)
    fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)


def delegation() -> None:
    # struct delegation of linux/fcntl.h: flags, type, padding.
    wanted = struct.pack("IHHQ", 0, fcntl.F_RDLCK, 0, 0)
    with may_lack("delegation", errno.EINVAL):  # before Linux 6.19
        fcntl.fcntl(os.open(FACTS["workspace"], os.O_RDONLY), _F_SETDELEG, wanted)


def notification() -> None:
    with may_lack("dnotify", errno.EINVAL):
        fcntl.fcntl(os.open(FACTS["workspace"], os.O_RDONLY), _F_NOTIFY, _DN_CREATE)


def device() -> None:
    only_root()
    os.mknod(INDEX, stat.S_IFCHR | 0o666, os.makedev(5, 0))
    os.unlink(INDEX)


def fifo_moved_in() -> None:
    elsewhere = f"{os.environ.get('TMPDIR', '/tmp')}/fifo-{os.getpid()}"
    os.mkfifo(elsewhere)
    try:
        os.rename(elsewhere, INDEX)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(elsewhere)
    os.unlink(INDEX)


def fifo(path: str) -> None:
    os.mkfifo(path)
    os.unlink(path)


attempt(
    {
        "lease on a file that may be written": lambda: lease(f"{FACTS['workspace']}/open"),
        "lease on a file that may be read": lambda: lease(CONFIG),
        "lease, by another number": lease_by_another_number,
        "lease for reading": read_lease,
        "delegation": delegation,
        "dnotify": notification,
        "fifo": lambda: fifo(INDEX),
        "fifo, moved in": fifo_moved_in,
        "device": device,
    }
)
