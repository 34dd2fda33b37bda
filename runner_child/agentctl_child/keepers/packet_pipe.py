"""Packets through a pipe that has one end inside a run.

A socket could carry descriptors, and a process inside could send such descriptors to the warden to
close. A packet is a frame of at most PIPE_BUF bytes. Such a write is done whole. If a non-blocking
pipe has no room, nothing is written (pipe(7)).
"""

import contextlib
import fcntl
import os
import select
from typing import Final

from agentctl_protocol.framing import HEADER, FrameBuffer, frame

LONGEST: Final = select.PIPE_BUF - HEADER.size
_READ_BYTES: Final = 65_536


def small_pipe() -> tuple[int, int]:
    """Make a pipe of two pages: the kernel counts the pages of all pipes of a user (pipe(7))."""
    reads, writes = os.pipe()
    with contextlib.suppress(OSError):  # the user has too many pipes: this one is smaller already
        fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 2 * select.PIPE_BUF)
    return reads, writes


class PacketReader:
    """The reading end of a pipe, which it owns and makes non-blocking."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._frames = FrameBuffer(LONGEST)

    def __repr__(self) -> str:
        return f"<PacketReader {self._descriptor}>"

    def fileno(self) -> int:
        """Return the descriptor, to wait for."""
        return self._descriptor

    def read(self) -> list[bytes] | None:
        """Return the packets that are there, perhaps none; None at the end of the pipe."""
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return []
        return list(self._frames.receive(data)) if data else None

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


def write_packet(descriptor: int, packet: bytes) -> None:
    """Write *packet*; drop it if the pipe has no reader or no room.

    SIGPIPE must be blocked or ignored.
    """
    with contextlib.suppress(OSError):
        os.write(descriptor, frame(packet, LONGEST))
