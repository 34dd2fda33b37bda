"""Reach the host's loopback by IPv6, and by IPv4 written as IPv6: refused, each of it."""

import errno
import socket
from collections.abc import Callable

from attempt import FACTS, Blocked, Impossible, attempt, may_lack

_V6 = socket.AF_INET6
_MPTCP = 262


def _connect(host: str, port: str, protocol: int = 0) -> Callable[[], str]:
    def connect() -> str:
        if not FACTS[port]:
            raise Impossible("no IPv6 here")
        with socket.socket(_V6, socket.SOCK_STREAM, protocol) as made:
            made.settimeout(3)
            made.connect((host, FACTS[port]))
            return f"connected to {made.getpeername()[:2]}"

    return connect


def datagram() -> str:
    with socket.socket(_V6, socket.SOCK_DGRAM) as made:
        made.connect(("::ffff:127.0.0.1", FACTS["udp_port"]))
        made.send(b"x")
        made.settimeout(0.5)
        try:
            made.recv(1)
        except TimeoutError:
            return "sent, and nobody was there to refuse it"
    raise Blocked("an answer")


def way_out() -> str:
    """To an address for documentation: nothing is sent."""
    unreachable = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL)
    with may_lack("IPv6 network", *unreachable), socket.socket(_V6, socket.SOCK_DGRAM) as made:
        made.connect(("2001:db8::1", 80))
        return f"from {made.getsockname()[0]}"


attempt(
    {
        "loopback": _connect("::1", "tcp6_port"),
        "mptcp": _connect("::1", "tcp6_port", _MPTCP),
        "any": _connect("::", "tcp6_port"),
        "mapped": _connect("::ffff:127.0.0.1", "tcp_port"),
        "mapped_mptcp": _connect("::ffff:127.0.0.1", "tcp_port", _MPTCP),
        "mapped_udp": datagram,
        "way_out": way_out,
    }
)
