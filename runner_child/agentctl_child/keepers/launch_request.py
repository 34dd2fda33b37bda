"""A request to fork a run, with its descriptors, as it arrives at the spawner."""

import contextlib
import os
import socket
from dataclasses import dataclass, fields
from typing import Final

import msgspec

from agentctl_protocol.errors import UNREADABLE
from agentctl_protocol.spawning import Launch, LaunchPacket

_PACKET_BYTES: Final = 4096
_MOST_DESCRIPTORS: Final = 9
#: The kernel takes at most 6 MiB of arguments and environment (execve(2)).
_MOST_LAUNCH_BYTES: Final = 32 << 20

_decode_packet = msgspec.msgpack.Decoder(LaunchPacket).decode
_decode_launch = msgspec.msgpack.Decoder(Launch).decode


class BadLaunchError(Exception):
    """A request that a correct supervisor never sends; the text says what is wrong with it."""


@dataclass(frozen=True)
class Descriptors:
    """The descriptors that came with a `LaunchPacket`, in the order of arrival.

    The agent reads from ``channel_in`` and writes to ``channel_out``.
    """

    launch: int
    status: int
    begin: int
    channel_in: int
    channel_out: int
    stdin: int
    stdout: int
    stderr: int
    cgroup: int | None = None

    def close(self) -> None:
        """Close all of them."""
        for field in fields(self):
            descriptor = getattr(self, field.name)
            if descriptor is not None:
                os.close(descriptor)


def receive(requests: socket.socket) -> tuple[LaunchPacket, Descriptors] | None:
    """Return the next request; None if the supervisor has closed its end.

    Raises BadLaunchError; then the descriptors are closed.
    """
    data, received, _, _ = socket.recv_fds(requests, _PACKET_BYTES, _MOST_DESCRIPTORS)
    for descriptor in received:
        # Python 3.11's recv_fds ignores its flags, so MSG_CMSG_CLOEXEC would not help.
        os.set_inheritable(descriptor, False)
    if not data:
        return None
    try:
        packet = _decode_packet(data)
        expected = _MOST_DESCRIPTORS if packet.cgroup else _MOST_DESCRIPTORS - 1
        if len(received) != expected:
            raise BadLaunchError(f"{len(received)} descriptors came, not {expected}")
    except (msgspec.MsgspecError, *UNREADABLE, BadLaunchError) as error:
        for descriptor in received:
            with contextlib.suppress(OSError):
                os.close(descriptor)
        raise BadLaunchError(str(error)) from None
    return packet, Descriptors(*received)


def read_launch(memfd: int) -> Launch:
    """Return the Launch in a memfd, after checks that the kernel would not make.

    Raises BadLaunchError.
    """
    size = os.fstat(memfd).st_size
    if size > _MOST_LAUNCH_BYTES:
        raise BadLaunchError(f"the launch has {size} bytes, more than {_MOST_LAUNCH_BYTES}")
    try:
        launch = _decode_launch(os.pread(memfd, size, 0))
    except (msgspec.MsgspecError, *UNREADABLE) as error:
        raise BadLaunchError(str(error)) from None
    if any(b"\0" in text for text in (*launch.argv, *launch.env, *launch.env.values(), launch.cwd)):
        raise BadLaunchError("an argument, variable or path contains a NUL byte")
    if any(b"=" in name or not name for name in launch.env):
        raise BadLaunchError("the name of a variable is empty or contains '='")
    if not launch.argv and not launch.target:
        raise BadLaunchError("neither a program nor a function to run")
    return launch
