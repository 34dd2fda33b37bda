"""Ask for what only the owner of a machine may: reboot, modules, swap, the clock: refused.

Every call is made with arguments that are wrong, or with the value that is set already: what
counts is that the kernel got past the question whether we may.
"""

import ctypes
import errno
import os
import socket
import struct
from collections.abc import Callable

from attempt import Blocked, attempt, checked, libc, may_lack, only_root, syscall

_NOWHERE = b"/agentctl-no-such-file"
_NO_MAGIC = 0
_INVALID_FLAGS = 0x4000
_BAD_DESCRIPTOR = -1
_ADJ_TICK = 0x4000
_SIZE_OF_TIMEX, _OFFSET_OF_TICK = 208, 88


def _gets_to(expected: int, number: int, *arguments: object) -> str:
    """Whether the call fails with what comes after the permission."""
    only_root()
    try:
        syscall(number, *arguments)
    except OSError as error:
        if error.errno != expected:
            raise
    return f"allowed, then {errno.errorcode[expected]}"


def _call(expected: int, number: int, *arguments: object) -> Callable[[], str]:
    return lambda: _gets_to(expected, number, *arguments)


def sync_quotas() -> str:
    syscall(179, 0x8000_0100, None, 0, None)  # Q_SYNC for users, of all file systems
    return "quotas written"


def sync_quotas_by_descriptor() -> str:
    """Linux 5.14; a directory with quotas or without (ENOSYS or ESRCH then)."""
    directory = os.open(".", os.O_RDONLY)
    try:
        syscall(443, directory, 0x8000_0100, 0, None)
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise
    return "it looked for quotas"


def ports() -> str:
    only_root()
    syscall(172, 3)  # iopl
    return "may use every port"


def one_port() -> str:
    only_root()
    syscall(173, 0x80, 1, 1)  # ioperm; 0x80 is the one for diagnostics
    return "may use port 0x80"


def same_name() -> str:
    only_root()
    name = socket.gethostname().encode()
    checked(libc.sethostname(name, len(name)))
    return f"named {name.decode()} again"


def same_clock() -> str:
    """Set the length of the clock's tick to what it is."""
    only_root()
    timex = ctypes.create_string_buffer(_SIZE_OF_TIMEX)
    checked(libc.adjtimex(timex))
    struct.pack_into("=I", timex, 0, _ADJ_TICK)
    checked(libc.adjtimex(timex))
    (tick,) = struct.unpack_from("=q", timex, _OFFSET_OF_TICK)
    return f"a tick is {tick} us again"


def raw_ports() -> str:
    """The same through a device."""
    only_root()
    with may_lack("/dev/port", errno.ENOENT):
        os.close(os.open("/dev/port", os.O_RDWR))
    return "may use every port"


def local_descriptors() -> str:
    """Write to the table of segments: old code, and holes in it."""
    # entry 0: base, limit, 32 bit data, not present
    entry = struct.pack("=IIII", 0, 0, 0, 0b0010_1000)
    syscall(154, 0x11, ctypes.create_string_buffer(entry, 16), 16)
    table = ctypes.create_string_buffer(16)
    if not syscall(154, 0, table, 16):
        raise Blocked("an empty table")
    return "a table of segments"


attempt(
    {
        # The magic numbers are looked at after CAP_SYS_BOOT.
        "reboot": _call(errno.EINVAL, 169, _NO_MAGIC, _NO_MAGIC, 0, None),
        "kexec_load": _call(errno.EINVAL, 246, 0, 0, None, _INVALID_FLAGS),
        "kexec_file_load": _call(errno.EINVAL, 320, -1, -1, 0, None, _INVALID_FLAGS),
        "init_module": _call(errno.EFAULT, 175, 1, 64, b""),
        "finit_module": _call(errno.EBADF, 313, _BAD_DESCRIPTOR, b"", 0),
        "delete_module": _call(errno.ENOENT, 176, b"agentctl_no_such", os.O_NONBLOCK),
        "swapon": _call(errno.ENOENT, 167, _NOWHERE, 0),
        "swapoff": _call(errno.ENOENT, 168, _NOWHERE),
        "acct": _call(errno.ENOENT, 163, _NOWHERE),
        "quotactl": sync_quotas,
        "quotactl_fd": sync_quotas_by_descriptor,
        "iopl": ports,
        "ioperm": one_port,
        "dev_port": raw_ports,
        "modify_ldt": local_descriptors,
        "sethostname": same_name,
        "adjtimex": same_clock,
    }
)
