"""A workspace with mounts beneath it, in a mount namespace of this program's own."""

import contextlib
import ctypes
import os
from pathlib import Path

from agentctl_testkit.spawner import RUN_UID
from agentctl_testkit.view import Caller

_libc = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS, _PRIVATE, _BIND, _DETACH = 0x0002_0000, 0x4_4000, 0x1000, 2


def mount(kind: bytes, place: Path, flags: int = 0, source: bytes = b"none") -> None:
    if _libc.mount(source, os.fsencode(place), kind, flags, None):
        raise OSError(ctypes.get_errno(), f"mount {place}")


assert _libc.unshare(_NEW_MOUNTS) == 0
mount(b"none", Path("/"), _PRIVATE)
with Caller.open("root") as caller, contextlib.ExitStack() as mounted:
    mappable, other, nested = (caller.make(f"beneath/{name}") for name in ("a", "b", "a b"))
    for place in (mappable, nested):
        mount(b"none", place, _BIND, os.fsencode(caller.make(f"bound/{place.name}")))
        mounted.callback(_libc.umount2, os.fsencode(place), _DETACH)
    mount(b"sysfs", other)
    mounted.callback(_libc.umount2, os.fsencode(other), _DETACH)
    said = caller.shell(
        "cd beneath; stat -c %u . a 'a b' b; ls b; touch 'a b/made'; stat -c %u 'a b/made'"
    ).split()
    assert said[:4] == [str(RUN_UID)] * 3 + ["0"], said
    assert said[-1] == str(RUN_UID), said
    assert "kernel" in said
    assert (nested / "made").stat().st_uid == 0
