"""The user database of a run: the run itself, root and nobody, and no user of the machine."""

import os
import pwd
from typing import Final

_NOBODY: Final = 65534
AGENT: Final = "agent"
"""The user name of a run that has its own uid."""


def caller_name(uid: int) -> str:
    """Return the caller's user name, or `AGENT` if the user database has none."""
    try:
        return _field(pwd.getpwuid(uid).pw_name) or AGENT
    except KeyError:
        return AGENT


def passwd(uid: int, gid: int, name: str, home: str, shell: str) -> bytes:
    """Return an ``/etc/passwd`` (passwd(5)) for a run with *uid*."""
    own = f"{name}:x:{uid}:{gid}:{name}:{_field(home)}:{_field(shell)}"
    lines = {
        0: f"root:x:0:0:root:/root:{_field(shell)}",
        _NOBODY: f"nobody:x:{_NOBODY}:{_NOBODY}:nobody:/nonexistent:/usr/sbin/nologin",
    }
    lines[uid] = own  # replaces root or nobody if the run has that uid
    return os.fsencode("\n".join(lines.values()) + "\n")


def group(gid: int, name: str) -> bytes:
    """Return an ``/etc/group`` (group(5)) for a run with *gid*."""
    lines = {0: "root:x:0:", 5: "tty:x:5:", _NOBODY: f"nogroup:x:{_NOBODY}:"}
    lines[gid] = f"{name}:x:{gid}:"
    return os.fsencode("\n".join(lines.values()) + "\n")


HOSTS: Final = b"127.0.0.1\tlocalhost agentctl\n::1\tlocalhost ip6-localhost ip6-loopback\n"
"""An ``/etc/hosts`` (hosts(5)) with the host name that the run sees.  Many programs look up the
name of their machine, and fail or wait if the lookup fails."""


def _field(text: str) -> str:
    """Return *text*, or an empty text if *text* would break its line in the file."""
    return text if text.isprintable() and ":" not in text else ""
