"""The gateway to the system calls that the standard library does not offer.

The tests run on x86_64. The numbers of aarch64 are copied from asm-generic/unistd.h and are
untested.
"""

import ctypes
import errno
import os
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from agentctl_child.sandbox.injected_failures import strike

_MACHINE: Final = os.uname().machine

# Numbers from 424 on are the same on every architecture.
PIDFD_SEND_SIGNAL: Final = 424
OPEN_TREE: Final = 428
MOVE_MOUNT: Final = 429
FSOPEN: Final = 430
FSCONFIG: Final = 431
FSMOUNT: Final = 432
PIDFD_OPEN: Final = 434
CLONE3: Final = 435
CLOSE_RANGE: Final = 436
OPENAT2: Final = 437
MOUNT_SETATTR: Final = 442
LANDLOCK_CREATE_RULESET: Final = 444
LANDLOCK_ADD_RULE: Final = 445
LANDLOCK_RESTRICT_SELF: Final = 446
_OLDER: Final = {"aarch64": (220, 90, 91, 277, 41, 97)}.get(_MACHINE, (56, 125, 126, 317, 155, 272))
CLONE, CAPGET, CAPSET, SECCOMP, PIVOT_ROOT, UNSHARE = _OLDER

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mount.argtypes = [
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
]
_libc.umount2.argtypes = [ctypes.c_char_p, ctypes.c_int]
_libc.signalfd.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
_syscall = _libc.syscall
_prctl = _libc.prctl
_long = ctypes.c_long
_P = ParamSpec("_P")
_T = TypeVar("_T")


def _checked(returned: int, what: str) -> int:
    if returned < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return returned


def syscall(what: str, number: int, *arguments: object) -> int:
    """Return the result of system call ``number``.

    Integers are passed as longs, the other arguments unchanged. Raises OSError with ``what`` in
    its text.
    """
    # ctypes passes a bare int as a C int: half of a register of a variadic call would be
    # undefined.
    words = [_long(a) if isinstance(a, int) else a for a in arguments]
    return uninterrupted(what, lambda: _checked(_syscall(_long(number), *words), what))


def uninterrupted(what: str, make: Callable[[], _T]) -> _T:
    """Return the result of *make*, a single call; it is repeated as often as it is interrupted.

    Keepers take no signals, so that what they set up is either done or refused.
    """
    while True:
        try:
            strike(what)
            return make()
        except InterruptedError:
            continue


def call(what: str, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Do the same for a call that Python offers, so that its failures look alike."""
    try:
        return uninterrupted(what, lambda: function(*args, **kwargs))
    except OSError as error:
        number = error.errno or errno.EIO
        raise OSError(number, f"{what}: {os.strerror(number)}") from None


def prctl(what: str, option: int, *arguments: object) -> int:
    """Query or set a property of this process.

    Missing arguments are 0, as the kernel often demands.
    """
    words = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    words += [ctypes.c_ulong(0)] * (4 - len(words))
    return uninterrupted(what, lambda: _checked(_prctl(option, *words), what))


def mount(source: bytes, target: bytes, kind: bytes | None, flags: int) -> None:
    """Mount a file system, without options of its own."""
    call("mount", lambda: _checked(_libc.mount(source, target, kind, flags, None), "mount"))


def unmount(target: bytes, flags: int) -> None:
    """Remove the mount on ``target``."""
    call("umount2", lambda: _checked(_libc.umount2(target, flags), "umount2"))


def signalfd(mask: bytes, flags: int) -> int:
    """Return a new descriptor that is readable when one of the signals of a sigset_t comes."""
    return _checked(_libc.signalfd(-1, mask, flags), "signalfd")
