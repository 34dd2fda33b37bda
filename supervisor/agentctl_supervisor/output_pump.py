"""A run's stdout or stderr: bytes from a pipe, into the log, then to whoever listens.

The log comes first and never waits for a listener once the run is over: a
terminal held by Ctrl-S must not hold up a stop.
"""

import os
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Literal

import trio

from agentctl_supervisor import readiness

_READ_BYTES: Final = 1 << 16
_WAITING_BYTES: Final = 1 << 20
_DRAIN_BYTES: Final = 16 << 20

StreamName = Literal["stdout", "stderr"]
OnOutput = Callable[[StreamName, bytes], Awaitable[None]]


class OutputPump:
    """Reads one stream of a run.

    *write_down* is called with every piece, in order; False from it means that no
    more is wanted, and the pipe is closed.  *on_output*, if given, is awaited with
    every piece; while it is slow the run is slowed down, too.
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
        """Read until the stream ends; cancel it to stop."""
        while self._fd >= 0:
            try:
                await readiness.wait_readable(self._fd)
            except trio.ClosedResourceError:
                return  # by `close`, on behalf of a reader that went away
            if not self._read_once():
                continue
            while self._waiting_bytes > _WAITING_BYTES and self._fd >= 0:
                await self._changed.wait()

    def drain(self) -> None:
        """Read what is left, without waiting for anybody who still holds the pipe, and close.

        To be called when the run's processes are gone and `read` was cancelled.
        """
        budget = _DRAIN_BYTES
        while self._fd >= 0 and budget > 0 and self._read_once():
            budget -= _READ_BYTES
        self.close()
        self._draining = True
        self._change()

    async def deliver(self) -> None:
        """Hand the pieces to *on_output*; returns when all are handed over."""
        if self._on_output is None:
            return
        while self._waiting or not self._draining:
            if not self._waiting:
                await self._changed.wait()
                continue
            piece = self._waiting.popleft()
            self._waiting_bytes -= len(piece)
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
            self._waiting_bytes += len(piece)
            self._change()
        return True

    def _change(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class _Tail:
    """The last *limit* bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: deque[bytes] = deque()
        self._kept = 0

    def add(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._kept += len(piece)
        while self._pieces and self._kept - len(self._pieces[0]) >= self._limit:
            self._kept -= len(self._pieces.popleft())

    def bytes(self) -> bytes:
        joined = b"".join(self._pieces)
        return joined[-self._limit :] if self._limit else b""
