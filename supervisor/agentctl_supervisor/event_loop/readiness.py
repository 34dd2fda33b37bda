"""Waits until descriptors can be read or written, even if epoll takes no more of them.

The kernel limits the epoll watches of each user (fs.epoll.max_user_watches).  A run of that user
can use them up.  Then ``trio.lowlevel.wait_readable`` raises ENOSPC for a descriptor that epoll
does not know yet.  poll(2) has no such limit, so a thread that was started in advance waits for
these descriptors by poll(2).
"""

import contextlib
import errno
import os
import select
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, Protocol

import trio

from agentctl_protocol.shared_counters import EPOLL_WATCHES, named
from agentctl_supervisor.errors import SpawnError

_FULL: Final = frozenset({errno.ENOSPC, errno.ENOMEM})


class HasFileno(Protocol):
    """An object with a descriptor."""

    def fileno(self) -> int:
        """Return the descriptor."""


def check_epoll() -> None:
    """Check that an event loop can start, which takes one epoll watch.

    Raises:
        SpawnError: this user has no more watches.
    """
    with contextlib.closing(select.epoll()) as epoll:
        descriptor = os.eventfd(0, os.EFD_CLOEXEC)
        try:
            epoll.register(descriptor, select.EPOLLIN)
        except OSError as error:
            raise SpawnError(
                f"no event loop can be started: {error.strerror}",
                f"used up: {named(EPOLL_WATCHES)}; `agentctl ps` lists runs that may hold them",
            ) from None
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def poll_thread() -> Iterator[None]:
    """Keep the thread that waits by poll(2) for this event loop, until the block ends.

    Raises:
        RuntimeError: no thread can be started.
    """
    shared = _thread.get(None) or _PollThread()
    _thread.set(shared)
    shared.users += 1
    try:
        yield
    finally:
        shared.users -= 1
        if not shared.users:
            _thread.set(None)
            shared.end()


async def wait_readable(source: int | HasFileno, *, alone: bool = True) -> None:
    """Wait until *source* can be read, or is at its end.

    If *alone* is False, other tasks may wait for it at the same time.

    Raises:
        OSError: *source* is not a descriptor that can be waited for; or epoll takes no more
            descriptors, and there is no `poll_thread`.
    """
    await _wait(source, trio.lowlevel.wait_readable, select.POLLIN, alone=alone)


async def wait_writable(source: int | HasFileno) -> None:
    """Wait until *source* can be written to; raises the same errors as `wait_readable`."""
    await _wait(source, trio.lowlevel.wait_writable, select.POLLOUT)


def notify_closing(source: int | HasFileno) -> None:
    """Wake the tasks that wait for *source* with `trio.ClosedResourceError`, before its close."""
    trio.lowlevel.notify_closing(source)
    if (thread := _thread.get(None)) is not None:
        thread.notify_closing(source if isinstance(source, int) else source.fileno())


async def _wait(
    source: int | HasFileno,
    by_epoll: Callable[[int | HasFileno], Awaitable[None]],
    events: int,
    *,
    alone: bool = True,
) -> None:
    try:
        await by_epoll(source)
        return
    except trio.BusyResourceError:
        if alone or (thread := _thread.get(None)) is None:
            raise
    except OSError as error:
        if error.errno not in _FULL or (thread := _thread.get(None)) is None:
            raise
    await thread.wait(source if isinstance(source, int) else source.fileno(), events)


class _Waiter:
    """One task that waits for one descriptor."""

    def __init__(self, fd: int, events: int) -> None:
        self.fd: Final = fd
        self.events: Final = events
        self.over: Final = trio.Event()
        self.closed = False


class _PollThread:
    """A thread that waits by poll(2) for the descriptors of the event loop's tasks.

    ``users`` counts the callers that rely on it.
    """

    def __init__(self) -> None:
        self.users = 0
        self._token = trio.lowlevel.current_trio_token()
        self._waiters: set[_Waiter] = set()
        self._lock = threading.Lock()
        self._ended = False
        self._changed = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="agentctl poll", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            os.close(self._changed)
            raise

    async def wait(self, fd: int, events: int) -> None:
        waiter = _Waiter(fd, events)
        self._change(self._waiters.add, waiter)
        try:
            await waiter.over.wait()
        finally:
            self._change(self._waiters.discard, waiter)
        if waiter.closed:
            raise trio.ClosedResourceError("another task closed this descriptor")

    def notify_closing(self, fd: int) -> None:
        with self._lock:
            closing = [waiter for waiter in self._waiters if waiter.fd == fd]
        for waiter in closing:
            waiter.closed = True
            waiter.over.set()
            self._change(self._waiters.discard, waiter)

    def end(self) -> None:
        self._ended = True
        os.eventfd_write(self._changed, 1)
        self._thread.join()
        os.close(self._changed)

    def _change(self, change: Callable[[_Waiter], None], waiter: _Waiter) -> None:
        with self._lock:
            change(waiter)
        # Wake the thread to poll again: its old poll would keep a closed descriptor open.
        os.eventfd_write(self._changed, 1)

    def _run(self) -> None:
        while not self._ended:
            with self._lock:
                waiters = tuple(self._waiters)
            wanted: dict[int, int] = {self._changed: select.POLLIN}
            for waiter in waiters:
                wanted[waiter.fd] = wanted.get(waiter.fd, 0) | waiter.events
            poll = select.poll()
            for fd, events in wanted.items():
                poll.register(fd, events)
            ready = dict(poll.poll())
            if ready.pop(self._changed, 0):
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(self._changed)
            # An error or the end wakes every waiter; its next read or write reports it.
            others = ~(select.POLLIN | select.POLLOUT)
            woken = [w for w in waiters if ready.get(w.fd, 0) & (w.events | others)]
            if woken:
                with self._lock:
                    self._waiters.difference_update(woken)
                # The loop may have ended meanwhile.
                with contextlib.suppress(trio.RunFinishedError):
                    self._token.run_sync_soon(_wake, woken)


def _wake(waiters: list[_Waiter]) -> None:
    for waiter in waiters:
        waiter.over.set()


_thread: Final = trio.lowlevel.RunVar[_PollThread | None]("poll thread")
