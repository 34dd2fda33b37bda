"""A run's stdout or stderr: reads its bytes, writes them to the log, then gives them to a listener.

The log comes first.  Once the run is over, the log never waits for the listener: a terminal
that is held by Ctrl-S must not delay a stop.
"""

import os
import sys
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Literal

import trio

from agentctl_supervisor.event_loop import readiness
from agentctl_supervisor.event_loop.turns import turns

_READ_BYTES: Final = 1 << 16
_WAITING_BYTES: Final = 1 << 20
_DRAIN_BYTES: Final = 16 << 20
_DRAIN_S: Final = 10.0

StreamName = Literal["stdout", "stderr"]
OnOutput = Callable[[StreamName, bytes], Awaitable[None]]


class OutputPump:
    """Reads one stream of a run.

    *write_down* is called with every piece, in order.  If it returns False, no more output is
    wanted and the pipe is closed.  *on_output*, if given, is awaited with every piece; while it
    is slow, it slows down the run, too.
    """

    def __init__(
        self,
        name: StreamName,
        fd: int,
        write_down: Callable[[StreamName, bytes], bool],
        on_output: OnOutput | None,
        capture_bytes: int,
    ) -> None:
        os.set_blocking(fd, False)
        self.name: Final = name
        self.captured = _Tail(capture_bytes)
        self._fd = fd
        self._write_down = write_down
        self._on_output = on_output
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._changed = trio.Event()
        self._draining = False

    def __repr__(self) -> str:
        state = "closed" if self._fd < 0 else "open"
        return f"<OutputPump {self.name} {state}, {self._waiting_bytes} bytes waiting>"

    async def read(self) -> None:
        """Read until the stream ends, in turns with others; cancel it to stop."""
        common = turns()
        while self._fd >= 0:
            try:
                await readiness.wait_readable(self._fd)
            except trio.ClosedResourceError:
                return  # by `close`, because a reader of the output went away
            with await common.next():
                if not self._read_once():
                    continue
            while self._waiting_bytes > _WAITING_BYTES and self._fd >= 0:
                await self._changed.wait()

    async def drain(self) -> None:
        """Read what is left, up to the end that `PipeRelay.finish` causes, and close.

        Call it when the run's processes are gone and `read` was cancelled.
        """
        left = _DRAIN_BYTES // _READ_BYTES
        with trio.move_on_after(_DRAIN_S):
            while self._fd >= 0 and left:
                with await turns().next() as turn:
                    while left and turn.goes_on() and self._read_once():
                        left -= 1
                if self._fd >= 0 and left:
                    await readiness.wait_readable(self._fd)
        self.close()
        self._draining = True
        self._change()

    async def deliver(self) -> None:
        """Hand the pieces to *on_output*, and return when all are handed over."""
        if self._on_output is None:
            return
        while self._waiting or not self._draining:
            if not self._waiting:
                await self._changed.wait()
                continue
            piece = self._waiting.popleft()
            self._waiting_bytes -= sys.getsizeof(piece)
            self._change()
            await self._on_output(self.name, piece)

    def close(self) -> None:
        """Close the pipe: a run that goes on writing gets SIGPIPE."""
        if self._fd >= 0:
            readiness.notify_closing(self._fd)
            os.close(self._fd)
            self._fd = -1
            self._change()

    def _read_once(self) -> bool:
        try:
            piece = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            piece = b""
        if not piece or not self._write_down(self.name, piece):
            self.close()
            return False
        self.captured.add(piece)
        if self._on_output is not None:
            self._waiting.append(piece)
            self._waiting_bytes += sys.getsizeof(piece)
            self._change()
        return True

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class _Tail:
    """The last *limit* bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()

    def add(self, piece: bytes) -> None:
        self._kept += piece
        if len(self._kept) > self._limit + max(self._limit, _READ_BYTES):
            # Rare enough that the cost per byte of moving the rest is negligible.
            del self._kept[: len(self._kept) - self._limit]

    def bytes(self) -> bytes:
        return bytes(self._kept[-self._limit :]) if self._limit else b""
