"""Connect to a service of the host's by the path of its UNIX socket: not there, or refused.

By such a socket a program gets another to act for it, outside of every sandbox: docker's and
systemd's start what they are told to, an agent of ssh signs.  Before ABI 9, Landlock has no
rule on them.
"""

import os
import socket
from collections.abc import Callable

from attempt import FACTS, attempt


def _connect(path: str) -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.connect(path)
        return f"connected to {made.getpeername()}"


def _service(name: str) -> Callable[[], str]:
    return lambda: _connect(FACTS["services"][name])


def datagram() -> str:
    """As to a log, or to what a service manager watches for notifications."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.sendto(b"x", FACTS["services"]["notify"])
        return "sent"


def datagram_of_a_pair() -> str:
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", FACTS["services"]["notify"])
    return "sent"


def relative() -> str:
    """From the workspace up."""
    return _connect(os.path.relpath(FACTS["services"]["docker"], FACTS["workspace"]))


def by_root_of_proc() -> str:
    return _connect(f"/proc/self/root{FACTS['services']['docker']}")


def by_a_link() -> str:
    """From the workspace, where a link may be made to anything."""
    link = os.path.join(FACTS["workspace"], "link")
    os.symlink(FACTS["services"]["docker"], link)
    return _connect(link)


def by_descriptor() -> str:
    """A descriptor that only names it (O_PATH): what Landlock lets everybody have."""
    named = os.open(FACTS["services"]["docker"], os.O_PATH)
    return _connect(f"/proc/self/fd/{named}")


attempt(
    {
        "docker": _service("docker"),
        "bus": _service("bus"),
        "ssh_agent": _service("ssh_agent"),
        "notify": datagram,
        "pair": datagram_of_a_pair,
        "relative": relative,
        "proc_root": by_root_of_proc,
        "link": by_a_link,
        "descriptor": by_descriptor,
    }
)
