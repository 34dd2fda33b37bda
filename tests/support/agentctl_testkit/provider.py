"""A model provider that streams for ever, and notes when its clients go away.

It speaks enough HTTP/1.1 for any client: ``GET /<call>`` is answered with a chunk every
few milliseconds until the client closes the connection.  Times are wall-clock seconds,
so that they can be laid beside the times in a run's log and report.
"""

import contextlib
import dataclasses
import select
import socket
import threading
import time
from typing import Final, Self

from agentctl_testkit.clock import contended_s

_CHUNK: Final = b"5\r\ntoken\r\n"
_EVERY_S: Final = 0.005
_HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


@dataclasses.dataclass
class Stream:
    """One request: ``path`` without its slash, when it came, and when its client was gone.

    ``contended_s``: for how long the machine was busy meanwhile, see `agentctl_testkit.clock`.
    """

    path: str
    at: float
    closed_at: float | None = None
    contended_s: float = 0.0


class Provider:
    """The stub, on a port of 127.0.0.1; a thread for each connection.

    ``chunks``: how many an answer has before it ends by itself; None is without end.
    """

    def __init__(self, chunks: int | None = None) -> None:
        self.streams: list[Stream] = []
        self._chunks = chunks
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: Final = int(self._listener.getsockname()[1])
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def __repr__(self) -> str:
        return f"<Provider on port {self.port}: {len(self.streams)} requests>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in [self._accepting, *self._threads]:
            thread.join(10)

    def wait_for_streams(self, count: int, within_s: float = 20.0) -> list[Stream]:
        """The requests so far, once there are *count* of them.

        Raises:
            AssertionError: there are fewer after *within_s* seconds.
        """
        with self._changed:
            there = self._changed.wait_for(lambda: len(self.streams) >= count, within_s)
        assert there, f"{len(self.streams)} requests, not {count}"
        return list(self.streams)

    def wait_for_close(self, stream: Stream, within_s: float = 10.0) -> float:
        """When the client of *stream* was seen to be gone.

        Raises:
            AssertionError: it is still there after *within_s* seconds.
        """
        with self._changed:
            gone = self._changed.wait_for(lambda: stream.closed_at is not None, within_s)
        assert gone, f"the connection of {stream.path} is still open"
        assert stream.closed_at is not None
        return stream.closed_at

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._answer, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request:
                data = connection.recv(4096)
                if not data:
                    return
                request += data
            path = request.split(b" ", 2)[1].decode().lstrip("/")
            stream = Stream(path, time.time())
            contended_before_s = contended_s()
            with self._changed:
                self.streams.append(stream)
                self._changed.notify_all()
            try:
                self._stream(connection)
            finally:
                with self._changed:
                    stream.closed_at = time.time()
                    stream.contended_s = contended_s() - contended_before_s
                    self._changed.notify_all()

    def _stream(self, connection: socket.socket) -> None:
        connection.sendall(_HEAD)
        poll = select.poll()
        # A client that closes, or whose process is killed, is readable: end of file or reset.
        poll.register(connection, select.POLLIN | select.POLLRDHUP)
        sent = 0
        while self._chunks is None or sent < self._chunks:
            if poll.poll(_EVERY_S * 1000) and not connection.recv(4096):
                return
            connection.sendall(_CHUNK)
            sent += 1
        connection.sendall(b"0\r\n\r\n")
