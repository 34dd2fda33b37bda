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
    own = f"{name}:x:{uid}:{gid}:{name}:{_field(home)}:{_field(shell)}"
    lines = {
        0: f"root:x:0:0:root:/root:{_field(shell)}",
        _NOBODY: f"nobody:x:{_NOBODY}:{_NOBODY}:nobody:/nonexistent:/usr/sbin/nologin",
    }
    lines[uid] = own  # in the place of one of the others, if it is that one
    return os.fsencode("\n".join(lines.values()) + "\n")


def group(gid: int, name: str) -> bytes:
    """An ``/etc/group`` (group(5)) for a run of *gid*."""
    lines = {0: "root:x:0:", 5: "tty:x:5:", _NOBODY: f"nogroup:x:{_NOBODY}:"}
    lines[gid] = f"{name}:x:{gid}:"
    return os.fsencode("\n".join(lines.values()) + "\n")


HOSTS: Final = b"127.0.0.1\tlocalhost agentctl\n::1\tlocalhost ip6-localhost ip6-loopback\n"
"""An ``/etc/hosts`` (hosts(5)) with what the run's machine is called: many programs look up the
name of the machine that they are on, and end, or wait, if nobody knows it."""


def _field(text: str) -> str:
    """*text*, unless it would break the line that it is to stand in."""
    return text if text.isprintable() and ":" not in text else ""
