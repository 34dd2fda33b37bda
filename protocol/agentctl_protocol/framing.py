"""Frames: a 4-byte big-endian length, then that many bytes of msgpack.

Completeness is decided here and meaning elsewhere, so that a frame which
arrives in a thousand pieces and one which arrives with ninety-nine others are
the same to everybody above.
"""

import struct
from collections.abc import Iterator
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
    """Turns received bytes into frame bodies, one by one as they are asked for.

    It holds what was fed and not asked for, and at most one incomplete frame.

    A length outside 1..*max_frame* is refused as soon as its four bytes are
    here, before anything is allocated for it.  From then on the stream has no
    meaning: whatever follows is refused too, and not kept.
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
        """Bytes received that were not given as part of a frame."""
        return len(self._buffer) + len(self._data) - self._at

    def receive(self, data: bytes) -> Iterator[bytes]:
        """Take *data* in, and give the bodies that it completes, in order; see `next_body`."""
        self.feed(data)
        return iter(self.next_body, None)

    def feed(self, data: bytes) -> None:
        """Take *data* in, whatever it is."""
        if self._broken:
            return
        if self._at < len(self._data):
            self._data = self._data[self._at :] + data
        elif self._buffer:
            self._buffer += data
            if not self._begins_with_whole_frame():
                return
            # What follows this frame is less than another one: each byte is copied here once.
            self._data = bytes(self._buffer)
            self._buffer.clear()
        else:
            self._data = data
        self._at = 0

    def next_body(self) -> bytes | None:
        """The next body, or None as long as no further frame is complete.

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
        """Forget what is held: it means nothing any more."""
        self._data, self._at = b"", 0
        self._buffer.clear()

    def _begins_with_whole_frame(self) -> bool:
        """Whether the buffer has a first frame to give, or one to refuse."""
        if len(self._buffer) < HEADER.size:
            return False
        (length,) = HEADER.unpack_from(self._buffer)
        return bool(length > self._max_frame or len(self._buffer) >= HEADER.size + length)
