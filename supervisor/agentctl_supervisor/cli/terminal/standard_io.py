"""Passes bytes between our standard streams and those of the run, unchanged.

We share the descriptors with the process that started us, so we must not set O_NONBLOCK: threads
wait instead.
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
"""The pipe capacity to request if a file takes the output.

It equals the amount that is read from a pipe after its run is over.  Most users get at most 1 MiB.
"""


class Output:
    """The destination of the run's stdout and stderr, and of our own lines about the run.

    ``on_closed`` is called with the name of a stream that has no reader any more.  The run must
    notice this as it would without us in between.

    On a terminal, the run's bytes pass unchanged, too.  Our lines and the status line do not
    disturb them, and `restore` undoes the changes that the run made to the terminal.
    ``abandoned``: we no longer wait for our readers.
    ``lost``: some output could not be written, for a reason other than a closed reading end.
    """

    def __init__(self, *, stdout_to_stderr: bool = False) -> None:
        self.on_closed: Callable[[StreamName], None] = lambda _stream: None
        self.abandoned = False
        self.lost = False
        self._stderr = _Sink(2)
        # One terminal has one cursor, even with several descriptors.
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
        """True if `status` shows anything: stderr is a console."""
        return self._stderr.screen is not None

    @property
    def pipes(self) -> OutputPipes:
        """The pipes that the run's output needs to behave as if we were not in between.

        If both streams go to the same place, they share one pipe: two pipes would lose the order.
        If a regular file takes the output, the pipes are large.  A program that writes without
        blocking, as node does to a pipe, loses at its exit what does not fit.
        """
        fds = [self._sinks[name].fd for name in ("stdout", "stderr")]
        regular = any(console.is_regular(fd) for fd in fds)
        return OutputPipes(console.same_file(*fds), _FILE_CAPACITY if regular else 0)

    async def write(self, stream: StreamName, data: bytes) -> None:
        """Write *data*; return when it is written, so that a slow reader slows the run."""
        sink = self._sinks.get(stream)
        if sink is None:
            return
        try:
            with self.until_abandoned():
                await sink.write(lambda screen: screen.output(data), data)
        except OSError as error:
            # This also handles a full disk and a closed terminal.
            del self._sinks[stream]
            self.on_closed(stream)
            if error.errno != errno.EPIPE:
                self.lost = True
                console.say(console.labelled("error", f"{stream}: {error.strerror}"))

    async def say(self, line: str) -> None:
        """Print a line of our own on stderr."""
        text = console.encoded(line)
        with contextlib.suppress(OSError):
            await self._stderr.write(lambda screen: screen.message(text), text + b"\n")

    async def status(self, line: str) -> None:
        """Show *line* below all output instead of the previous one; an empty line hides it."""
        text = console.status_bytes(line)
        with contextlib.suppress(OSError):
            columns = console.screen_columns(2)
            await self._stderr.write(lambda screen: screen.status(text, columns))

    async def out(self, text: str) -> None:
        """Print a line of our own on our stdout.

        Raises:
            OSError: the line could not be written.
        """
        line = console.encoded(text)
        await self._stdout.write(lambda screen: screen.message(line), line + b"\n")

    async def restore(self) -> None:
        """Remove the status line and restore the terminals to their state before the run."""
        with contextlib.suppress(OSError):
            for sink in {self._stderr, self._stdout}:
                await sink.write(lambda screen: screen.end())

    def abandon(self) -> None:
        """Discard the run's output that is not written yet, and all later output."""
        self.abandoned = True
        self._sinks.clear()
        for scope in self._writing:
            scope.cancel()

    @contextlib.contextmanager
    def until_abandoned(self) -> Iterator[None]:
        """End the wait for our readers in this block when `abandon` is called."""
        # Both streams may wait for their readers at the same time: each has its own scope.
        with trio.CancelScope() as scope:
            if self.abandoned:
                scope.cancel()
            self._writing.add(scope)
            try:
                yield
            finally:
                self._writing.discard(scope)


class _Sink:
    """A descriptor that one task at a time writes to; ``screen`` is set if it is a console."""

    def __init__(self, fd: int) -> None:
        self.screen: Final = Screen() if console.is_terminal(fd) else None
        self.fd: Final = fd
        self._lock = trio.Lock()

    def __repr__(self) -> str:
        return f"<_Sink {self.fd}{' terminal' if self.screen else ''}>"

    def is_terminal_of(self, fd: int) -> bool:
        """Return True if *fd* is the same console."""
        return self.screen is not None and console.same_device(self.fd, fd)

    async def write(self, drawn: Callable[[Screen], bytes], plain: bytes = b"") -> None:
        """Write what *drawn* returns for the screen, or *plain* if there is no screen.

        Raises:
            OSError: the data could not be written.
        """
        async with self._lock:
            data = plain if self.screen is None else drawn(self.screen)
            if data:
                # A reader that does not read blocks the thread; `abandon` stops waiting for it.
                await run_sync("output", write_all, self.fd, data, abandon_on_cancel=True)


async def pump_input(stdin: trio.abc.SendStream) -> None:
    """Pass our standard input on to *stdin* until it ends, or until the run reads no more."""
    async with stdin:
        while True:
            try:
                # Only the user can end a read of a terminal; on cancel, the thread is abandoned.
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
