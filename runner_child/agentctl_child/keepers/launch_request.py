"""A request to fork a run, with its descriptors, as it arrives at the spawner.

And one to begin a run in a place that stands by, as it arrives at the warden and at init.
"""

import contextlib
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

import msgspec

from agentctl_protocol.spawning import Launch, LaunchPacket

_PACKET_BYTES: Final = 4096
_MOST_DESCRIPTORS: Final = 7
#: The kernel takes at most 6 MiB of arguments and environment (execve(2)).
_MOST_LAUNCH_BYTES: Final = 32 << 20

_decode_packet = msgspec.msgpack.Decoder(LaunchPacket).decode
_decode_launch = msgspec.msgpack.Decoder(Launch).decode


class BadLaunchError(Exception):
    """A request that no honest supervisor sends; the text says what is wrong with it."""


@dataclass(frozen=True)
class AgentDescriptors:
    """What the agent is given, in the order in which it comes."""

    channel: int
    stdin: int
    stdout: int
    stderr: int

    def close(self) -> None:
        """Close all of them."""
        close_all(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True)
class Descriptors:
    """What came beside a `LaunchPacket`; ``agents`` is None for a place that is to stand by."""

    launch: int
    status: int
    agents: AgentDescriptors | None
    cgroup: int | None = None

    def close(self) -> None:
        """Close all of them."""
        close_all((self.launch, self.status))
        if self.agents is not None:
            self.agents.close()
        if self.cgroup is not None:
            os.close(self.cgroup)


def close_all(descriptors: Iterable[int]) -> None:
    """Close all of *descriptors*, whatever they are."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def receive_packet(source: socket.socket, size: int = _PACKET_BYTES) -> tuple[bytes, list[int]]:
    """The next packet and what came beside it; waits for it.  Raises OSError."""
    data, received, _, _ = socket.recv_fds(source, size, _MOST_DESCRIPTORS)
    for descriptor in received:
        # Python 3.11's recv_fds ignores its flags, so MSG_CMSG_CLOEXEC would not help.
        os.set_inheritable(descriptor, False)
    return data, received


def receive(requests: socket.socket) -> tuple[LaunchPacket, Descriptors] | None:
    """The next request; None when the supervisor has closed its end.

    Raises BadLaunchError; the descriptors are closed then.
    """
    data, received = receive_packet(requests)
    if not data:
        return None
    try:
        packet = _decode_packet(data)
        expected = (2 if packet.standby else 6) + (1 if packet.cgroup else 0)
        if len(received) != expected:
            raise BadLaunchError(f"{len(received)} descriptors came, not {expected}")
    except (msgspec.MsgspecError, BadLaunchError) as error:
        close_all(received)
        raise BadLaunchError(str(error)) from None
    launch, status, *rest = received
    cgroup = rest.pop() if packet.cgroup else None
    return packet, Descriptors(launch, status, AgentDescriptors(*rest) if rest else None, cgroup)


def begun(received: list[int]) -> tuple[int, AgentDescriptors]:
    """The memfd and the rest of what came beside a `Begin`.

    Raises BadLaunchError; the descriptors are closed then.
    """
    if len(received) != 5:
        close_all(received)
        raise BadLaunchError(f"{len(received)} descriptors came, not 5")
    memfd, *agents = received
    return memfd, AgentDescriptors(*agents)


def read_launch(memfd: int, *, stands_by: bool = False) -> Launch:
    """The Launch in a memfd, checked as far as the kernel would not.  Raises BadLaunchError."""
    size = os.fstat(memfd).st_size
    if size > _MOST_LAUNCH_BYTES:
        raise BadLaunchError(f"the launch has {size} bytes, more than {_MOST_LAUNCH_BYTES}")
    try:
        launch = _decode_launch(os.pread(memfd, size, 0))
    except msgspec.MsgspecError as error:
        raise BadLaunchError(str(error)) from None
    if any(b"\0" in text for text in (*launch.argv, *launch.env, *launch.env.values(), launch.cwd)):
        raise BadLaunchError("an argument, variable or path contains a NUL byte")
    if any(b"=" in name or not name for name in launch.env):
        raise BadLaunchError("the name of a variable is empty or contains '='")
    if launch.stands_by is not stands_by:
        raise BadLaunchError(
            "a run where a place was asked for" if stands_by else "neither program nor function"
        )
    return launch
