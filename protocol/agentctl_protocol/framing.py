"""Frames: a 4-byte big-endian length, then that many bytes of msgpack.

This module only decides when a frame is complete; other modules give it a meaning. A frame that
arrives in a thousand pieces and a frame that arrives with ninety-nine others are therefore the
same for all layers above.
"""

import struct
from collections.abc import Iterator
from typing import Final

from agentctl_protocol.errors import LocalProtocolError, PeerProtocolError

MAX_FRAME: Final = 1 << 20
"""Default upper bound of one frame's body, in bytes."""

HEADER: Final = struct.Struct(">I")


def frame(body: bytes, max_frame: int = MAX_FRAME) -> bytes:
    """Return *body* with its length in front.

    Raises:
        LocalProtocolError: *body* is empty or longer than *max_frame* bytes.
    """
    if not 0 < len(body) <= max_frame:
        raise LocalProtocolError(f"a frame of {len(body)} bytes: the limit is {max_frame}")
    return HEADER.pack(len(body)) + body


class FrameBuffer:
    """Turns received bytes into frame bodies, one by one as they are asked for.

    It holds the bytes that were fed and not asked for, and at most one incomplete frame.

    A length outside 1..*max_frame* is refused as soon as its four bytes have arrived, before
    memory is allocated for it. From then on the stream has no meaning: later bytes are refused
    too, and not kept.
    """

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_frame = max_frame
        #: Whole frames that were not asked for yet, from `_at` on, and what follows them.
        self._data = b""
        self._at = 0
        #: An incomplete frame.
        self._buffer = bytearray()
        self._broken = ""

    def __repr__(self) -> str:
        return f"<FrameBuffer {self.pending} bytes pending>"

    @property
    def pending(self) -> int:
        """The number of received bytes that were not given as part of a frame."""
        return len(self._buffer) + len(self._data) - self._at

    def receive(self, data: bytes) -> Iterator[bytes]:
        """Take *data* in, and return the bodies that it completes, in order; see `next_body`."""
        self.feed(data)
        return iter(self.next_body, None)

    def feed(self, data: bytes) -> None:
        """Take any *data* in."""
        if self._broken:
            return
        if self._at < len(self._data):
            self._data = self._data[self._at :] + data
        elif self._buffer:
            self._buffer += data
            if not self._begins_with_whole_frame():
                return
            # The rest after this frame is less than another frame: each byte is copied here only
            # once.
            self._data = bytes(self._buffer)
            self._buffer.clear()
        else:
            self._data = data
        self._at = 0

    def next_body(self) -> bytes | None:
        """Return the next body, or None if no further frame is complete.

        Raises:
            PeerProtocolError: its length is zero or over the limit.
        """
        if self._broken:
            raise PeerProtocolError(self._broken)
        data, at = self._data, self._at
        if len(data) - at >= HEADER.size:
            (length,) = HEADER.unpack_from(data, at)
            if not 0 < length <= self._max_frame:
                self._broken = f"a frame of {length} bytes: the limit is {self._max_frame}"
                self.clear()
                raise PeerProtocolError(self._broken)
            body, end = at + HEADER.size, at + HEADER.size + length
            if end <= len(data):
                self._at = end
                return data[body:end]
        if at < len(data):
            self._buffer += data[at:]
        self._data, self._at = b"", 0
        return None

    def clear(self) -> None:
        """Drop the held bytes: they have no meaning any more."""
        self._data, self._at = b"", 0
        self._buffer.clear()

    def _begins_with_whole_frame(self) -> bool:
        """Return True if the buffer has a first frame to give, or one to refuse."""
        if len(self._buffer) < HEADER.size:
            return False
        (length,) = HEADER.unpack_from(self._buffer)
        return bool(length > self._max_frame or len(self._buffer) >= HEADER.size + length)
