"""Byte streams over our descriptors that also work without epoll: see `readiness`.

The streams of trio wait by epoll only, and fail if a run has used up its user's watches.
"""

import os
from typing import Final

import trio

from agentctl_supervisor.event_loop import readiness

_READ_BYTES: Final = 1 << 16


class ControlStream(trio.abc.AsyncResource):
    """A client's connection to the control socket, as *socket*, which `aclose` closes."""

    def __init__(self, socket: trio.socket.SocketType) -> None:
        self.socket: Final = socket

    def __repr__(self) -> str:
        return f"<ControlStream {self.socket!r}>"

    async def receive_some(self) -> bytes:
        """Wait for data from the client and return it; empty if the client sends no more.

        Raises:
            trio.BrokenResourceError: the client is gone.
        """
        await trio.lowlevel.checkpoint()
        while True:
            try:
                return os.read(self.socket.fileno(), _READ_BYTES)
            except BlockingIOError:
                await readiness.wait_readable(self.socket.fileno())
            except OSError as error:
                raise trio.BrokenResourceError from error

    async def send_all(self, data: bytes) -> None:
        """Send *data*.

        Raises:
            trio.BrokenResourceError: the client is gone.
        """
        await _write_all(self.socket.fileno(), data)

    async def aclose(self) -> None:
        """Close the connection."""
        if self.socket.fileno() >= 0:
            readiness.notify_closing(self.socket.fileno())
            self.socket.close()
        await trio.lowlevel.checkpoint()


class PipeWriter(trio.abc.SendStream):
    """The writing end *fd* of a pipe, which `aclose` closes."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._sending = trio.Lock()

    def __repr__(self) -> str:
        return f"<PipeWriter {self._fd}>"

    def fileno(self) -> int:
        """Return the descriptor, or -1 if it is closed."""
        return self._fd

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write *data*.

        Raises:
            trio.BusyResourceError: another task is writing.
            trio.BrokenResourceError: the pipe has no reader any more.
            trio.ClosedResourceError: the stream is closed, or was closed meanwhile.
        """
        try:
            self._sending.acquire_nowait()
        except trio.WouldBlock:
            raise trio.BusyResourceError("another task is writing to this pipe") from None
        try:
            await _write_all(self._fd, data)
        finally:
            self._sending.release()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until something can be written, or the pipe has no reader any more."""
        if self._fd < 0:
            raise trio.ClosedResourceError("this pipe is closed")
        await readiness.wait_writable(self._fd)

    async def aclose(self) -> None:
        """Close it, so that the reader gets the end of file."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            readiness.notify_closing(fd)
            os.close(fd)
        await trio.lowlevel.checkpoint()


async def _write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    await trio.lowlevel.checkpoint()
    if fd < 0:
        raise trio.ClosedResourceError("this stream is closed")
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            await readiness.wait_writable(fd)
        except OSError as error:
            raise trio.BrokenResourceError from error
