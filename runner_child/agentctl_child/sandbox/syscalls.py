"""The gateway to those system calls that the standard library does not offer.

x86_64 is what the tests run on; the aarch64 numbers are written down from
asm-generic/unistd.h and are untested.
"""

import ctypes
import os
from typing import Final

_MACHINE: Final = os.uname().machine

# Numbers from 424 on are the same on every architecture.
PIDFD_SEND_SIGNAL: Final = 424
PIDFD_OPEN: Final = 434
CLONE3: Final = 435
CLOSE_RANGE: Final = 436
MOUNT_SETATTR: Final = 442
LANDLOCK_CREATE_RULESET: Final = 444
LANDLOCK_ADD_RULE: Final = 445
LANDLOCK_RESTRICT_SELF: Final = 446
_OLDER: Final = {"aarch64": (220, 90, 91, 277)}.get(_MACHINE, (56, 125, 126, 317))
CLONE, CAPGET, CAPSET, SECCOMP = _OLDER

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_libc.mount.argtypes = [
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
]
_libc.signalfd.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int]
_syscall = _libc.syscall
_prctl = _libc.prctl
_long = ctypes.c_long


def _checked(returned: int, what: str) -> int:
    if returned < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return returned


def syscall(what: str, number: int, *arguments: object) -> int:
    """What system call ``number`` returned; integers are passed as longs, the rest as it is.

    Raises OSError with ``what`` in its text.
    """
    # ctypes passes a bare int as a C int: half a register of a variadic call is rubbish.
    words = [_long(a) if isinstance(a, int) else a for a in arguments]
    return _checked(_syscall(_long(number), *words), what)


def prctl(what: str, option: int, *arguments: object) -> int:
    """Ask or tell the kernel about this process; missing arguments are 0, as it often demands."""
    words = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    words += [ctypes.c_ulong(0)] * (4 - len(words))
    return _checked(_prctl(option, *words), what)


def mount(source: bytes, target: bytes, kind: bytes | None, flags: int) -> None:
    """Mount something, without options of its file system."""
    _checked(_libc.mount(source, target, kind, flags, None), f"mount {os.fsdecode(target)}")


def signalfd(mask: bytes, flags: int) -> int:
    """A new descriptor that is readable when one of the signals of a sigset_t comes."""
    return _checked(_libc.signalfd(-1, mask, flags), "signalfd")
