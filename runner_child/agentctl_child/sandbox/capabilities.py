"""The capabilities of root that the agent may keep: capabilities(7)."""

import ctypes
import errno
import struct
from collections.abc import Iterable
from typing import Final

from agentctl_child.sandbox import syscalls

DAC_OVERRIDE: Final = 1
DAC_READ_SEARCH: Final = 2

#: The set that docker leaves to root in a container, without MKNOD. In particular it has no
#: SYS_ADMIN (which could unmount /proc), SYS_PTRACE (which could steal init's descriptors),
#: SYS_MODULE or SYS_RAWIO.
ROOT_IN_A_RUN: Final = frozenset(
    {
        0,  # CHOWN
        1,  # DAC_OVERRIDE
        3,  # FOWNER
        4,  # FSETID
        5,  # KILL
        6,  # SETGID
        7,  # SETUID
        8,  # SETPCAP
        10,  # NET_BIND_SERVICE
        13,  # NET_RAW
        18,  # SYS_CHROOT
        29,  # AUDIT_WRITE
        31,  # SETFCAP
    }
)

_SETPCAP: Final = 8
_VERSION_3: Final = 0x2008_0522
_PR_SET_KEEPCAPS: Final = 8
_PR_CAPBSET_DROP: Final = 24
_PR_CAP_AMBIENT: Final = 47
_AMBIENT_RAISE: Final = 2
_AMBIENT_CLEAR_ALL: Final = 4
_HIGHEST: Final = 63


def keep_over_setuid() -> None:
    """Let the permitted set survive the next change from uid 0 to another uid."""
    syscalls.prctl("PR_SET_KEEPCAPS", _PR_SET_KEEPCAPS, 1)


def may_limit() -> bool:
    """Return True if we can remove capabilities from our bounding set."""
    return bool(_effective() >> _SETPCAP & 1)


def limit_bounding(keep: Iterable[int]) -> None:
    """Remove all but ``keep`` from the bounding set, for this process and all that it executes."""
    kept = frozenset(keep)
    for capability in range(_HIGHEST + 1):
        if capability in kept:
            continue
        try:
            syscalls.prctl("PR_CAPBSET_DROP", _PR_CAPBSET_DROP, capability)
        except OSError as error:
            if error.errno == errno.EINVAL:  # past the last capability that this kernel knows
                return
            raise


def hold(keep: Iterable[int], *, ambient: bool = False) -> None:
    """Hold those capabilities of ``keep`` that we have, and no other.

    ``ambient``: they survive an exec without uid 0. Capabilities that a container has not given to
    its root cannot be kept, and asking for them is EPERM.
    """
    permitted = _permitted()
    keep = [capability for capability in keep if permitted >> capability & 1]
    mask = sum(1 << capability for capability in keep)
    syscalls.prctl("PR_CAP_AMBIENT", _PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    _set(mask, inheritable=mask if ambient else 0)
    if ambient:
        for capability in keep:
            syscalls.prctl("PR_CAP_AMBIENT", _PR_CAP_AMBIENT, _AMBIENT_RAISE, capability)


def _header() -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(struct.pack("=Ii", _VERSION_3, 0), 8)


def _effective() -> int:
    low, _, _, high, _, _ = _get()
    return low | high << 32


def _permitted() -> int:
    _, low, _, _, high, _ = _get()
    return low | high << 32


def _get() -> tuple[int, ...]:
    """Return the words of two struct __user_cap_data_struct: effective, permitted, inheritable."""
    data = ctypes.create_string_buffer(24)
    syscalls.syscall("capget", syscalls.CAPGET, _header(), data)
    return struct.unpack("=6I", data.raw)


def _set(mask: int, inheritable: int) -> None:
    low, high = mask & 0xFFFF_FFFF, mask >> 32
    data = struct.pack("=6I", low, low, inheritable & 0xFFFF_FFFF, high, high, inheritable >> 32)
    syscalls.syscall("capset", syscalls.CAPSET, _header(), ctypes.create_string_buffer(data, 24))
