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

from agentctl_supervisor.cli.terminal import console
from agentctl_supervisor.cli.terminal.raw_output import write_all
from agentctl_supervisor.cli.terminal.screen import Screen
from agentctl_supervisor.event_loop.worker_threads import run_sync
from agentctl_supervisor.run.launch_pipes import OutputPipes
from agentctl_supervisor.run.output import StreamName

_READ_BYTES: Final = 1 << 16
_FILE_CAPACITY: Final = 16 << 20
"""As much as is read of a pipe once its run is over; 1 MiB of it is what most users may have."""


class Output:
    """Where the run's stdout and stderr go, and our own lines about it.

    ``on_closed`` is called with the name of a stream that nobody will read any more:
    the run is to learn of it as it would without us in between.

    On a terminal the run's bytes pass unchanged, too; our lines and the status line keep
    out of their way, and `restore` puts back what the run changed there and left.
    ``abandoned``: somebody does not want to wait for our readers.
    ``lost``: some of the output could not be written, and nobody closed the reading end.
    """

    def __init__(self, *, stdout_to_stderr: bool = False) -> None:
        self.on_closed: Callable[[StreamName], None] = lambda _stream: None
        self.abandoned = False
        self.lost = False
        self._stderr = _Sink(2)
        # One terminal has one cursor, whatever the number of descriptors for it.
        self._stdout = self._stderr if self._stderr.is_terminal_of(1) else _Sink(1)
        self._sinks: dict[StreamName, _Sink] = {
            "stdout": self._stderr if stdout_to_stderr else self._stdout,
            "stderr": self._stderr,
        }
        self._writing: set[trio.CancelScope] = set()

    def __repr__(self) -> str:
        return f"<Output {self._sinks}>"

    @property
    def has_status(self) -> bool:
        """Whether `status` shows anything: stderr is a console."""
        return self._stderr.screen is not None

    @property
    def pipes(self) -> OutputPipes:
        """The pipes that pass the run's output on as if we were not in between.

        One where both streams go to one place: two would lose their order.  Large ones where a
        regular file takes the output: a program that writes without blocking, as node does to a
        pipe, loses at its exit what does not fit.
        """
        fds = [self._sinks[name].fd for name in ("stdout", "stderr")]
        regular = any(console.is_regular(fd) for fd in fds)
        return OutputPipes(console.same_file(*fds), _FILE_CAPACITY if regular else 0)

    async def write(self, stream: StreamName, data: bytes) -> None:
        """Writes *data*; returns when it is written, so that a slow reader slows the run."""
        sink = self._sinks.get(stream)
        if sink is None:
            return
        try:
            with self.until_abandoned():
                await sink.write(lambda screen: screen.output(data), data)
        except OSError as error:
            # Also for a full disk and a terminal that is gone.
            del self._sinks[stream]
            self.on_closed(stream)
            if error.errno != errno.EPIPE:
                self.lost = True
                console.say(console.labelled("error", f"{stream}: {error.strerror}"))

    async def say(self, line: str) -> None:
        """A line of our own on stderr."""
        text = console.encoded(line)
        with contextlib.suppress(OSError):
            await self._stderr.write(lambda screen: screen.message(text), text + b"\n")

    async def status(self, line: str) -> None:
        """Show *line* below all output, in place of the one before; an empty one hides it."""
        text = console.status_bytes(line)
        with contextlib.suppress(OSError):
            columns = console.screen_columns(2)
            await self._stderr.write(lambda screen: screen.status(text, columns))

    async def out(self, text: str) -> None:
        """A line of our own on our stdout.

        Raises:
            OSError: it could not be written.
        """
        line = console.encoded(text)
        await self._stdout.write(lambda screen: screen.message(line), line + b"\n")

    async def restore(self) -> None:
        """Take the status line away and leave the terminals as they were before the run."""
        with contextlib.suppress(OSError):
            for sink in {self._stderr, self._stdout}:
                await sink.write(lambda screen: screen.end())

    def abandon(self) -> None:
        """Gives up what the run wrote and is not written yet, and all that comes."""
        self.abandoned = True
        self._sinks.clear()
        for scope in self._writing:
            scope.cancel()

    @contextlib.contextmanager
    def until_abandoned(self) -> Iterator[None]:
        """Waiting in here for our readers ends when nobody wants to wait for them."""
        # Both streams may be waiting for their readers at once: a scope each.
        with trio.CancelScope() as scope:
            if self.abandoned:
                scope.cancel()
            self._writing.add(scope)
            try:
                yield
            finally:
                self._writing.discard(scope)


class _Sink:
    """A descriptor that is written to by one at a time; ``screen`` if it is a console."""

    def __init__(self, fd: int) -> None:
        self.screen: Final = Screen() if console.is_terminal(fd) else None
        self.fd: Final = fd
        self._lock = trio.Lock()

    def __repr__(self) -> str:
        return f"<_Sink {self.fd}{' terminal' if self.screen else ''}>"

    def is_terminal_of(self, fd: int) -> bool:
        """Whether *fd* is the same console."""
        return self.screen is not None and console.same_device(self.fd, fd)

    async def write(self, drawn: Callable[[Screen], bytes], plain: bytes = b"") -> None:
        """Writes what *drawn* makes of the screen, or where there is none *plain*.

        Raises:
            OSError: it could not be written.
        """
        async with self._lock:
            data = plain if self.screen is None else drawn(self.screen)
            if data:
                # A reader that does not read blocks the thread; `abandon` leaves it behind.
                await run_sync("output", write_all, self.fd, data, abandon_on_cancel=True)


async def pump_input(stdin: trio.abc.SendStream) -> None:
    """Passes our standard input on to *stdin* until it ends, or until the run reads no more."""
    async with stdin:
        while True:
            try:
                # Nothing ends a read of a terminal but its user; the thread is left behind.
                data = await run_sync("input", _read_some, 0, abandon_on_cancel=True)
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
