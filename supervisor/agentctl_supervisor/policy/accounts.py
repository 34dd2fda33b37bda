"""The user database of a run: itself, root and nobody, and none of the machine's users."""

import os
import pwd
from typing import Final

_NOBODY: Final = 65534
AGENT: Final = "agent"
"""What a run is called that has a uid of its own."""


def caller_name(uid: int) -> str:
    """What the caller is called, or `AGENT` if nobody knows."""
    try:
        return _field(pwd.getpwuid(uid).pw_name) or AGENT
    except KeyError:
        return AGENT


def passwd(uid: int, gid: int, name: str, home: str, shell: str) -> bytes:
    """An ``/etc/passwd`` (passwd(5)) for a run of *uid*."""
    lines = [
        f"root:x:0:0:root:/root:{_field(shell)}",
        f"nobody:x:{_NOBODY}:{_NOBODY}:nobody:/nonexistent:/usr/sbin/nologin",
    ]
    if uid not in (0, _NOBODY):
        lines.append(f"{name}:x:{uid}:{gid}:{name}:{_field(home)}:{_field(shell)}")
    return os.fsencode("\n".join(lines) + "\n")


def group(gid: int, name: str) -> bytes:
    """An ``/etc/group`` (group(5)) for a run of *gid*."""
    lines = ["root:x:0:", "tty:x:5:", f"nogroup:x:{_NOBODY}:"]
    if gid not in (0, 5, _NOBODY):
        lines.append(f"{name}:x:{gid}:")
    return "\n".join(lines).encode() + b"\n"


HOSTS: Final = b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"


def _field(text: str) -> str:
    """*text*, unless it would break the line that it is to stand in."""
    return text if text.isprintable() and ":" not in text else ""
