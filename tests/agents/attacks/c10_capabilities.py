"""Hold a capability in any of the five sets, or get one back: none.

What the bounding set still has, the next setuid program or the next user namespace can give.
"""

import ctypes
from collections.abc import Callable

from attempt import Blocked, attempt, checked, libc, only_root

_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_PR_SET_SECUREBITS, _PR_GET_SECUREBITS = 28, 27
_SYS_ADMIN = 21


def _status() -> dict[str, str]:
    with open("/proc/self/status") as status:
        return dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)


def _held(name: str) -> Callable[[], str]:
    def held() -> str:
        # Of an ordinary user only this set is not empty.
        if name != "CapBnd":
            only_root()
        bits = _status()[name]
        if not int(bits, 16):
            raise Blocked("empty")
        return bits

    return held


def inheritable() -> str:
    """Nobody has any there, so first it is put there: which root may."""
    only_root()
    _raise_inheritable()
    bits = _status()["CapInh"]
    if not int(bits, 16):
        raise Blocked("empty")
    return bits


def ambient() -> str:
    only_root()
    _raise_inheritable()
    checked(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _SYS_ADMIN, 0, 0))
    return _status()["CapAmb"]


def _raise_inheritable() -> None:
    version_3 = ctypes.create_string_buffer(b"\x22\x05\x08\x20" + bytes(4))
    data = (ctypes.c_uint32 * 6)()
    checked(libc.capget(version_3, data))
    data[2] |= 1 << _SYS_ADMIN
    checked(libc.capset(version_3, data))


def secure_bits() -> str:
    """What CAP_SETPCAP is for: to change what root means to exec(2)."""
    only_root()
    checked(libc.prctl(_PR_SET_SECUREBITS, libc.prctl(_PR_GET_SECUREBITS, 0, 0, 0, 0), 0, 0, 0))
    return "the same secure bits set again"


attempt(
    {
        "permitted": _held("CapPrm"),
        "effective": _held("CapEff"),
        "bounding": _held("CapBnd"),
        "inheritable": inheritable,
        "ambient": ambient,
        "securebits": secure_bits,
    }
)
