"""The network of a run without a network: its own loopback, and nothing else."""

import fcntl
import socket
import struct
from typing import Final

from agentctl_child.sandbox import syscalls

_SET_FLAGS: Final = 0x8914  # SIOCSIFFLAGS, netdevice(7)
_UP: Final = 1


def raise_loopback() -> None:
    """Let the programs of a new network namespace talk to each other at 127.0.0.1 and ::1.

    Only in a network namespace of our own, which has no way out: the interface leads only back to
    itself. Needs CAP_NET_ADMIN there.
    """
    # struct ifreq: the name, then the flags.
    request = struct.pack("16sh22x", b"lo", _UP)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as any_socket:
        syscalls.call("ioctl", fcntl.ioctl, any_socket.fileno(), _SET_FLAGS, request)
