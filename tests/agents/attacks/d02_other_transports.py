"""Reach the host by what a rule on TCP's connect leaves out: refused, each of it.

Landlock's rules know connect(2) and bind(2) of TCP: not MPTCP, not data in the SYN (TCP fast
open), not UDP.
"""

import ctypes
import errno
import socket
import struct
from collections.abc import Callable

from attempt import FACTS, Blocked, attempt, checked, libc, may_lack, only_root

_MPTCP, _SMC = 262, 256
_FAST_OPEN, _FAST_OPEN_CONNECT = 0x2000_0000, 30
_NO_SUCH = (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT)
_HOST = ("127.0.0.1", FACTS["tcp_port"])
_UDP_HOST = ("127.0.0.1", FACTS["udp_port"])


def _stream(protocol: int) -> Callable[[], str]:
    def connect() -> str:
        with (
            may_lack("such protocol", *_NO_SUCH),
            socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as made,
        ):
            made.settimeout(3)
            made.connect(_HOST)
            return f"connected to {made.getpeername()}"

    return connect


def _fast(send: Callable[[socket.socket], object]) -> Callable[[], str]:
    def fast() -> str:
        # Not one with a timeout: that does not wait, and says EINPROGRESS.
        with socket.socket() as made:
            send(made)
            # Whether it was more than queued: only who is connected can send again.
            made.send(b"again")
            return f"connected to {made.getpeername()}"

    return fast


def _sendto(made: socket.socket) -> None:
    made.sendto(b"x", _FAST_OPEN, _HOST)


def _sendmsg(made: socket.socket) -> None:
    made.sendmsg([b"x"], (), _FAST_OPEN, _HOST)


def _sendmmsg(made: socket.socket) -> None:
    name = struct.pack("=H", socket.AF_INET) + struct.pack("!H", _HOST[1])
    name += socket.inet_aton(_HOST[0]) + bytes(8)
    address = ctypes.create_string_buffer(name, 16)
    data = ctypes.create_string_buffer(b"x", 1)
    piece = ctypes.create_string_buffer(struct.pack("QQ", ctypes.addressof(data), 1), 16)
    # A msghdr, then how much of it was sent.
    message = struct.pack(
        "QI4xQQQQi4xI4x", ctypes.addressof(address), 16, ctypes.addressof(piece), 1, 0, 0, 0, 0
    )
    checked(libc.sendmmsg(made.fileno(), ctypes.create_string_buffer(message), 1, _FAST_OPEN))


def _option(made: socket.socket) -> None:
    made.setsockopt(socket.IPPROTO_TCP, _FAST_OPEN_CONNECT, 1)
    made.connect(_HOST)
    made.send(b"x")


def mptcp_fast_open() -> str:
    with (
        may_lack("such protocol", *_NO_SUCH),
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, _MPTCP) as made,
    ):
        # Since Linux 6.2.
        with may_lack("fast open of MPTCP", errno.EOPNOTSUPP):
            made.sendto(b"x", _FAST_OPEN, _HOST)
        made.send(b"again")
        return f"connected to {made.getpeername()}"


def _answered(made: socket.socket) -> str:
    """Whether a datagram that was sent got to somebody; if not, the kernel says so."""
    made.settimeout(0.5)
    try:
        made.recv(1)
    except TimeoutError:
        return "sent, and nobody was there to refuse it"
    raise Blocked("an answer")


def datagram() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.connect(_UDP_HOST)
        made.send(b"x")
        return _answered(made)


def unconnected() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        # So that what is refused is said to us, too.
        made.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR
        made.sendto(b"x", _UDP_HOST)
        return _answered(made)


def ping() -> str:
    """The ICMP socket of ordinary users: an echo from an address of the host's."""
    return _echo(socket.SOCK_DGRAM)


def raw_ping() -> str:
    only_root()
    return _echo(socket.SOCK_RAW)


def _echo(kind: int) -> str:
    address = FACTS["address"] or "127.0.0.1"
    with (
        may_lack("ICMP socket for this user", errno.EACCES, errno.EPERM),
        socket.socket(socket.AF_INET, kind, socket.IPPROTO_ICMP) as made,
    ):
        made.settimeout(2)
        # Type 8, its sum for an empty message with number 1.
        made.sendto(struct.pack("!BBHHH", 8, 0, 0xF7FE, 0, 1), (address, 0))
        try:
            return f"an echo of {len(made.recv(1024))} bytes from {address}"
        except TimeoutError:
            raise Blocked("no echo") from None


attempt(
    {
        "mptcp": _stream(_MPTCP),
        "mptcp_fast_open": mptcp_fast_open,
        "smc": _stream(_SMC),
        "fast_open_sendto": _fast(_sendto),
        "fast_open_sendmsg": _fast(_sendmsg),
        "fast_open_sendmmsg": _fast(_sendmmsg),
        "fast_open_option": _fast(_option),
        "udp": datagram,
        "udp_unconnected": unconnected,
        "ping": ping,
        "raw_ping": raw_ping,
    }
)
