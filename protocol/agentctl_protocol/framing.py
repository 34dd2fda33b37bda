"""Frames: a 4-byte big-endian length, then that many bytes of msgpack.

Completeness is decided here and meaning elsewhere, so that a frame which
arrives in a thousand pieces and one which arrives with ninety-nine others are
the same to everybody above.
"""

import struct
from collections.abc import Iterable, Iterator
from typing import Final

from agentctl_protocol.errors import LocalProtocolError, PeerProtocolError

MAX_FRAME: Final = 1 << 20
"""Default upper bound of one frame's body, in bytes."""

HEADER: Final = struct.Struct(">I")


def frame(body: bytes, max_frame: int = MAX_FRAME) -> bytes:
    """*body* with its length in front.

    Raises:
        LocalProtocolError: *body* is empty or longer than *max_frame* bytes.
    """
    if not 0 < len(body) <= max_frame:
        raise LocalProtocolError(f"a frame of {len(body)} bytes: the limit is {max_frame}")
    return HEADER.pack(len(body)) + body


class FrameBuffer:
    """Turns received bytes into frame bodies, holding at most one incomplete frame.

    A length outside 1..*max_frame* is refused as soon as its four bytes are
    here, before anything is allocated for it.  From then on the stream has no
    meaning: whatever follows is refused too, and not kept.
    """

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_frame = max_frame
        self._buffer = bytearray()
        self._broken = ""

    def __repr__(self) -> str:
        return f"<FrameBuffer {len(self._buffer)} bytes pending>"

    @property
    def pending(self) -> int:
        """Bytes received that are not yet part of a complete frame."""
        return len(self._buffer)

    def receive(self, data: bytes) -> Iterator[bytes]:
        """Take *data* in, and give the bodies that it completes, in order.

        Raises (while iterated, behind the bodies that came before):
            PeerProtocolError: a length is zero or over the limit.
        """
        if self._broken:
            return self._then_raise(())
        buffer = self._buffer
        if buffer:
            buffer += data
            if not self._begins_with_whole_frame():
                return iter(())
            # What follows this frame is less than another one: each byte is copied here once.
            data = bytes(buffer)
            buffer.clear()
        bodies: list[bytes] = []
        at, size = 0, len(data)
        while size - at >= HEADER.size:
            (length,) = HEADER.unpack_from(data, at)
            if not 0 < length <= self._max_frame:
                self._broken = f"a frame of {length} bytes: the limit is {self._max_frame}"
                return self._then_raise(bodies)
            end = at + HEADER.size + length
            if end > size:
                break
            bodies.append(data[at + HEADER.size : end])
            at = end
        if at < size:
            buffer += data[at:]
        return iter(bodies)

    def _begins_with_whole_frame(self) -> bool:
        """Whether the buffer has a first frame to give, or one to refuse."""
        if len(self._buffer) < HEADER.size:
            return False
        (length,) = HEADER.unpack_from(self._buffer)
        return bool(length > self._max_frame or len(self._buffer) >= HEADER.size + length)

    def _then_raise(self, bodies: Iterable[bytes]) -> Iterator[bytes]:
        yield from bodies
        raise PeerProtocolError(self._broken)
