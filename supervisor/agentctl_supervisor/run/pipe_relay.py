"""Carries bytes between the pipes of a run and our sockets, in a thread that may block.

A pipe has one lock.  A process that reads or writes the pipe copies to or from its own memory
while it holds that lock.  If access to that memory is slow, the other end waits in read(2),
write(2) and close(2), even if it is non-blocking, and nothing can interrupt it (fs/pipe.c; seen
on Linux 6.18).  In addition, each of these calls wakes every waiter of the pipe, and a run can
register a million waiters (epoll).  Either would block the event loop, and with it all other
runs.  So only a thread that belongs to the run touches the run's pipes.  For each pipe there is
a socket pair: the event loop has one end, and the thread has the other.
"""

import contextlib
import os
import queue
import select
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Final

_AT_ONCE: Final = 1 << 17
_KEPT: Final = 4
_SPLICE_F_NONBLOCK: Final = 2  # <linux/splice.h>


class PipeRelay:
    """Carries bytes between each pipe and its socket, until either of the two is closed.

    A *pipe* that is passed to `read_from` or `write_to` belongs to the relay from then on.

    Raises:
        OSError: out of descriptors.
    """

    def __init__(self) -> None:
        self._ways: dict[int, _Way] = {}
        self._poll = select.poll()
        self._lock = threading.Lock()
        self._finishing = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._finishing, select.POLLIN)

    def __repr__(self) -> str:
        return f"<PipeRelay {len(self._ways) // 2} ways>"

    def read_from(self, pipe: int) -> int:
        """Return a socket from which to read what the run writes to *pipe*."""
        ours, theirs = _socket_for(pipe)
        self._add(pipe, theirs, incoming=True)
        return ours

    def write_to(self, pipe: int) -> int:
        """Return a socket to which to write what the run reads from *pipe*."""
        ours, theirs = _socket_for(pipe)
        self._add(theirs, pipe, incoming=False)
        return ours

    def start(self) -> None:
        """Start to carry.  No pipe may be added after that.

        Raises:
            RuntimeError: no thread can be started.
        """
        _threads.do(self._carry)
        _relays.add(self)

    def finish(self) -> None:
        """Carry what is in the run's pipes now, and nothing more.

        A reader of the sockets gets that data and then the end, even if another process still
        has the pipes open.
        """
        with self._lock:
            if self._finishing >= 0:
                os.eventfd_write(self._finishing, 1)

    def close(self) -> None:
        """Close all descriptors of the relay."""
        for way in set(self._ways.values()):
            way.close()
        self._ways = {}
        with self._lock:
            if self._finishing >= 0:
                os.close(self._finishing)
                self._finishing = -1

    def close_in_child(self) -> None:
        """Close the same descriptors in a forked child, which does not have the thread."""
        for fd in (*self._ways, self._finishing):
            with contextlib.suppress(OSError):
                os.close(fd)

    def _add(self, source: int, target: int, *, incoming: bool) -> None:
        way = _Way(self._poll, source, target, incoming=incoming)
        self._ways[source] = self._ways[target] = way

    def _carry(self) -> None:
        while self._ways:
            for fd, _ in self._poll.poll():
                if way := self._ways.get(fd):
                    way.carry(fd)
                    if not way.closed:
                        continue
                elif fd == self._finishing:
                    self._poll.unregister(fd)
                    for way in set(self._ways.values()):
                        way.finish()
                # The number of a closed descriptor may soon be reused.
                self._ways = {end: way for end, way in self._ways.items() if not way.closed}
        self.close()


class _Way:
    """Carries bytes from *source* to *target* by splice(2), so that none is copied to our memory.

    One end is always a socket: a splice from pipe to pipe would take the locks of both at once.
    """

    def __init__(self, poll: select.poll, source: int, target: int, *, incoming: bool) -> None:
        self.closed = False
        self._poll = poll
        self._source = source
        self._target = target
        self._is_incoming = incoming
        self._is_full = self._is_last = False
        for fd in (source, target):
            os.set_blocking(fd, False)
        poll.register(source, select.POLLIN)
        poll.register(target, 0)  # reports when the target has no reader any more

    def carry(self, ready: int) -> None:
        """Carry the available bytes; *ready* is the end that poll(2) has reported."""
        if self._is_full:
            self._is_full = False
            self._poll.register(self._source, select.POLLIN)
            self._poll.modify(self._target, 0)
        elif ready == self._target:
            self.close()
            return
        self._move()

    def finish(self) -> None:
        """Carry the rest of the run's output; drop its input, which no process reads now."""
        self._is_last = True
        if not self._is_incoming:
            self.close()
        elif not self._is_full:
            self._move()

    def close(self) -> None:
        """Close both ends."""
        self.closed = True
        for fd in (self._source, self._target):
            with contextlib.suppress(KeyError):
                self._poll.unregister(fd)
            os.close(fd)

    def _move(self) -> None:
        while True:
            try:
                moved = os.splice(self._source, self._target, _AT_ONCE, flags=_SPLICE_F_NONBLOCK)
            except BlockingIOError:
                if _is_readable(self._source):
                    self._is_full = True
                    self._poll.unregister(self._source)
                    self._poll.modify(self._target, select.POLLOUT)
                elif self._is_last:
                    self.close()
                return
            except OSError:  # EPIPE; EIO, ENODATA: the run put a page there that cannot be read
                moved = 0
            if not moved:
                self.close()
            if not moved or not self._is_last:
                return


def _is_readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _socket_for(pipe: int) -> tuple[int, int]:
    try:
        ours, theirs = socket.socketpair()
    except OSError:
        os.close(pipe)
        raise
    return ours.detach(), theirs.detach()


class _Threads:
    """The threads of the relays, one for each.

    Some are started in advance, because a run can use up all threads that this user may have.
    ``_users`` counts the callers that rely on these.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = self._users = 0

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Keep some idle threads until the block ends.

        Raises:
            RuntimeError: they cannot be started.
        """
        with self._lock:
            while self._idle < _KEPT:
                self._start()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                while not self._users and self._idle:
                    self._idle -= 1
                    self._calls.put(None)

    def do(self, call: Callable[[], None]) -> None:
        """Let a thread make *call*; raise RuntimeError if there is none."""
        with self._lock:
            try:
                self._start()
            except RuntimeError:
                if not self._idle:
                    raise
            self._idle -= 1
            self._calls.put(call)

    def _start(self) -> None:
        threading.Thread(target=self._serve, name="agentctl pipes", daemon=True).start()
        self._idle += 1

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
            with self._lock:
                if not self._users or self._idle >= _KEPT:
                    return
                self._idle += 1


_threads: Final = _Threads()
threads_kept: Final = _threads.kept
_relays: Final = weakref.WeakSet[PipeRelay]()


def _close_in_child() -> None:
    for relay in list(_relays):
        relay.close_in_child()


os.register_at_fork(after_in_child=_close_in_child)
