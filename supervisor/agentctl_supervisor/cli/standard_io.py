"""Our standard streams on one side, those of the run on the other, byte for byte.

The descriptors are shared with whoever started us, so O_NONBLOCK is not ours to
set: threads do the waiting.
"""

import contextlib
import errno
import os
import select
from collections.abc import Callable, Iterator
from typing import Final

import trio

from agentctl_supervisor.cli import terminal
from agentctl_supervisor.output_pump import StreamName

_READ_BYTES: Final = 1 << 16


class Output:
    """Where the run's stdout and stderr go.

    ``on_closed`` is called with the name of a stream that nobody will read any more:
    the run is to learn of it as it would without us in between.
    """

    def __init__(self, *, stdout_fd: int = 1) -> None:
        self.on_closed: Callable[[StreamName], None] = lambda _stream: None
        self._fds: dict[StreamName, int] = {"stdout": stdout_fd, "stderr": 2}
        self._writing: set[trio.CancelScope] = set()

    def __repr__(self) -> str:
        return f"<Output {self._fds}>"

    async def write(self, stream: StreamName, data: bytes) -> None:
        """Writes *data*; returns when it is written, so that a slow reader slows the run."""
        fd = self._fds.get(stream)
        if fd is None:
            return
        try:
            with self._scope():
                # A reader that does not read blocks the thread; `abandon` leaves it behind.
                await trio.to_thread.run_sync(_write_all, fd, data, abandon_on_cancel=True)
        except OSError as error:
            # Also for a full disk and a terminal that is gone.
            del self._fds[stream]
            self.on_closed(stream)
            if error.errno != errno.EPIPE:
                terminal.say(f"error: {stream}: {error.strerror}")

    def abandon(self) -> None:
        """Gives up what is not written yet, and all that comes."""
        self._fds.clear()
        for scope in self._writing:
            scope.cancel()

    @contextlib.contextmanager
    def _scope(self) -> Iterator[None]:
        # Both streams may be waiting for their readers at once: a scope each.
        with trio.CancelScope() as scope:
            self._writing.add(scope)
            try:
                yield
            finally:
                self._writing.discard(scope)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            # Somebody who shares the descriptor made it non-blocking.
            poll = select.poll()
            poll.register(fd, select.POLLOUT)
            poll.poll()


async def pump_input(stdin: trio.abc.SendStream) -> None:
    """Passes our standard input on to *stdin* until it ends, or until the run reads no more."""
    async with stdin:
        while True:
            try:
                # Nothing ends a read of a terminal but its user; the thread is left behind.
                data = await trio.to_thread.run_sync(_read_some, 0, abandon_on_cancel=True)
                if not data:
                    return
                await stdin.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                return


def _read_some(fd: int) -> bytes:
    while True:
        try:
            return os.read(fd, _READ_BYTES)
        except BlockingIOError:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.poll()
