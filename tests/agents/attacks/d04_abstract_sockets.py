"""Connect to an abstract UNIX socket of the host's: none is there.

They have no file and no mode, and belong to the network namespace: whoever knows the name,
gets in (X11, D-Bus, containerd before CVE-2020-15257).
"""

import socket

from attempt import FACTS, Blocked, attempt

_STREAM = f"\0{FACTS['abstract']}"
_DGRAM = f"\0{FACTS['abstract_dgram']}"


def stream() -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.connect(_STREAM)
        return f"connected to {made.getpeername()!r}"


def datagram() -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.sendto(b"x", _DGRAM)
        return "sent"


def datagram_by_sendmsg() -> str:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.sendmsg([b"x"], (), 0, _DGRAM)
        return "sent"


def datagram_of_a_pair() -> str:
    """A socket of a pair can be sent from to any address."""
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", _DGRAM)
    return "sent"


def listed() -> str:
    """Their names, for who does not know them."""
    with open("/proc/net/unix") as file:
        names = [line.split()[-1] for line in file if FACTS["abstract"] in line]
    if not names:
        raise Blocked("not listed")
    return f"listed: {names[0]}"


attempt(
    {
        "stream": stream,
        "dgram": datagram,
        "sendmsg": datagram_by_sendmsg,
        "pair": datagram_of_a_pair,
        "listed": listed,
    }
)
