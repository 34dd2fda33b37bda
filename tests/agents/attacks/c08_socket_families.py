"""Open sockets of families that no agent needs: refused, whatever the kernel has.

A socket of a rare family is a door to code that few have looked at, or past a namespace:
vsock reaches the hypervisor from every network namespace.
"""

import errno
import socket
import struct
from collections.abc import Callable

from attempt import Blocked, attempt, may_lack, only_root

_STREAM, _DGRAM, _RAW, _SEQPACKET = 1, 2, 3, 5
_ROUTE, _NETFILTER, _GENERIC, _AUDIT, _UEVENT, _DIAG = 0, 12, 16, 9, 15, 4
_NO_SUCH = (errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT, errno.ENODEV)
_LINK_GET, _REQUEST_DUMP = 18, 0x301

#: Those that only root may open have True.
_SOCKETS = {
    "packet": (17, _RAW, 0x0300, True),
    "packet_dgram": (17, _DGRAM, 0x0300, True),
    "raw": (2, _RAW, 255, True),
    "raw_icmp": (2, _RAW, 1, True),
    "raw6": (10, _RAW, 58, True),
    "netfilter": (16, _RAW, _NETFILTER, False),
    "generic": (16, _RAW, _GENERIC, False),
    "audit": (16, _RAW, _AUDIT, False),
    "uevent": (16, _DGRAM, _UEVENT, False),
    "diag": (16, _DGRAM, _DIAG, False),
    "vsock": (40, _STREAM, 0, False),
    "vsock_dgram": (40, _DGRAM, 0, False),
    "alg": (38, _SEQPACKET, 0, False),
    "bluetooth": (31, _RAW, 1, True),
    "can": (29, _RAW, 1, False),
    "key": (15, _RAW, 2, True),
    "xdp": (44, _RAW, 0, True),
    "rds": (21, _SEQPACKET, 0, False),
    "tipc": (30, _STREAM, 0, False),
    "smc": (43, _STREAM, 0, False),
    "kcm": (41, _SEQPACKET, 0, False),
    "qipcrtr": (42, _DGRAM, 0, False),
    "ppp_over_ethernet": (24, _STREAM, 0, False),
    "llc": (26, _STREAM, 0, True),
    "phonet": (35, _DGRAM, 0, True),
    "ieee802154": (36, _DGRAM, 0, False),
    "caif": (37, _STREAM, 0, True),
    "nfc": (39, _SEQPACKET, 1, False),
    "mctp": (45, _DGRAM, 0, False),
    "x25": (9, _SEQPACKET, 0, False),
    "ax25": (3, _DGRAM, 0, False),
    "appletalk": (5, _DGRAM, 0, False),
    "atm": (8, _DGRAM, 0, False),
    "mpls": (28, _RAW, 0, True),
    "sctp": (2, _STREAM, 132, False),
    "dccp": (2, 6, 33, False),
    "smc_in_inet": (2, _STREAM, 256, False),
    "udplite": (2, _DGRAM, 136, False),
}


def _opened(family: int, kind: int, protocol: int, root: bool) -> Callable[[], str]:
    def opened() -> str:
        if root:
            only_root()
        with may_lack("such socket", *_NO_SUCH), socket.socket(family, kind, protocol) as made:
            return f"socket {made.fileno()}"

    return opened


def interfaces() -> str:
    """The kernel's answer to a question of routing netlink."""
    with socket.socket(16, _RAW, _ROUTE) as netlink:
        netlink.settimeout(2)
        netlink.bind((0, 0))
        netlink.send(struct.pack("=IHHII", 32, _LINK_GET, _REQUEST_DUMP, 1, 0) + bytes(16))
        answer = netlink.recv(1 << 16)
    if len(answer) < 32:
        raise Blocked(f"{len(answer)} bytes")
    names = [name for _, name in socket.if_nameindex()]
    return f"{len(answer)} bytes on {names}"


attempt(
    {
        **{name: _opened(*arguments) for name, arguments in _SOCKETS.items()},
        "route": interfaces,
    }
)
