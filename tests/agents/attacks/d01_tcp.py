"""Connect by TCP to the host, its network, the cloud's metadata or anybody: refused.

For what is not on this machine the kernel is asked for the way there, and nothing is sent.
"""

import ctypes
import errno
import socket
from collections.abc import Callable

from attempt import FACTS, Impossible, attempt, checked, libc, may_lack

_UNREACHABLE = (errno.ENETUNREACH, errno.EHOSTUNREACH)


def _connect(host: str, port: int) -> str:
    with socket.create_connection((host, port), timeout=3) as made:
        return f"connected to {made.getpeername()}"


def _to(host: str) -> Callable[[], str]:
    return lambda: _connect(host, FACTS["tcp_port"])


def by_address() -> str:
    """An address of this machine that others on its network use."""
    if not FACTS["address"]:
        raise Impossible("this machine has no address but loopback")
    return _connect(FACTS["address"], FACTS["address_port"])


def without_blocking() -> str:
    """The same in two steps: started, and asked for later."""
    with socket.socket() as made:
        made.setblocking(False)
        made.connect_ex(("127.0.0.1", FACTS["tcp_port"]))
        made.settimeout(3)
        made.send(b"x")
        return f"connected to {made.getpeername()}"


def after_a_reset() -> str:
    """A socket that was connected to nothing (AF_UNSPEC) before."""
    with socket.socket() as made:
        checked(libc.connect(made.fileno(), ctypes.create_string_buffer(16), 16))
        made.settimeout(3)
        made.connect(("127.0.0.1", FACTS["tcp_port"]))
        return f"connected to {made.getpeername()}"


def _way_to(host: str) -> Callable[[], str]:
    def way() -> str:
        with (
            may_lack("network", *_UNREACHABLE),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made,
        ):
            made.connect((host, 80))
            return f"{host} from {made.getsockname()[0]}"

    return way


attempt(
    {
        "loopback": _to("127.0.0.1"),
        "any": _to("0.0.0.0"),  # noqa: S104 - to connect to
        "address": by_address,
        "nonblocking": without_blocking,
        "unspec": after_a_reset,
        "metadata": _way_to("169.254.169.254"),
        "private": _way_to("10.0.0.1"),
        "public": _way_to("192.0.2.1"),
    }
)
