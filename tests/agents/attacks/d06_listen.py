"""Take a port of the host's and wait for its callers, bound or not: nobody calls.

The host tries the port that the attack writes into its workspace.
"""

import os
import socket
from collections.abc import Callable

from attempt import FACTS, Blocked, attempt

_MPTCP = 262


def _announce(name: str, port: int) -> None:
    """Where the host looks; whole at once."""
    path = os.path.join(FACTS["workspace"], name)
    with open(f"{path}.part", "w") as file:
        file.write(str(port))
    os.rename(f"{path}.part", f"{path}.port")


def _called(name: str, listener: socket.socket) -> str:
    listener.settimeout(3)
    listener.listen()
    _announce(name, listener.getsockname()[1])
    try:
        caller, address = listener.accept()
    except TimeoutError:
        raise Blocked("nobody called") from None
    with caller:
        return f"{address[0]} called"


def _bound(name: str, address: str, protocol: int = 0) -> Callable[[], str]:
    def bound() -> str:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as made:
            made.bind((address, 0))
            return _called(name, made)

    return bound


def unbound() -> str:
    """To listen gives a port to who has none: a rule on bind(2) does not see it."""
    with socket.socket() as made:
        return _called("unbound", made)


def version_6() -> str:
    with socket.socket(socket.AF_INET6) as made:
        made.bind(("::", 0))
        return _called("version_6", made)


attempt(
    {
        "loopback": _bound("loopback", "127.0.0.1"),
        "any": _bound("any", "0.0.0.0"),  # noqa: S104 - it is what is tried
        "mptcp": _bound("mptcp", "127.0.0.1", _MPTCP),
        "unbound": unbound,
        "version_6": version_6,
    }
)
