"""Asks many supervisors at once for the reports of their runs.

Each supervisor gets one request, and all have the same half second to answer.  A supervisor
that does not answer in time is left out; its runs' logs then tell what is known of them.
"""

import contextlib
import select
import socket
import time
from collections.abc import Iterable
from typing import Final

import msgspec

from agentctl_protocol.control import (
    MAX_CONTROL_FRAME,
    PING_TIMEOUT_S,
    Reply,
    Statuses,
    StatusRequest,
)
from agentctl_protocol.errors import UNREADABLE, ProtocolError
from agentctl_protocol.framing import FrameBuffer, frame
from agentctl_protocol.os_names import to_bytes
from agentctl_protocol.report import Report

_REQUEST: Final = frame(msgspec.msgpack.encode(StatusRequest(brief=True)))
_AT_ONCE: Final = 200
"""The most connections at a time: descriptors are limited to 1,024 by default."""

_reply: Final = msgspec.msgpack.Decoder(Reply)


def live_reports(paths: Iterable[str]) -> dict[str, Report]:
    """Return brief reports by run id, from all supervisors at the sockets *paths* that answer."""
    waiting = list(dict.fromkeys(paths))
    found: dict[str, Report] = {}
    while waiting:
        with contextlib.ExitStack() as stack:
            asked = [one for path in waiting[:_AT_ONCE] if (one := _ask(path, stack)) is not None]
            _collect(asked, found)
        del waiting[:_AT_ONCE]
    return found


def _ask(path: str, stack: contextlib.ExitStack) -> socket.socket | None:
    try:
        connection = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        # If a stuck supervisor's queue of connections is full, fail with EAGAIN and do not wait.
        connection.setblocking(False)
        connection.connect(to_bytes(path))
        connection.send(_REQUEST)
    except (OSError, ValueError):  # ValueError: not a possible path
        return None
    return connection


def _collect(asked: Iterable[socket.socket], found: dict[str, Report]) -> None:
    deadline = time.monotonic() + PING_TIMEOUT_S
    poll = select.poll()
    open_ = {}
    for connection in asked:
        poll.register(connection, select.POLLIN)
        open_[connection.fileno()] = (connection, FrameBuffer(MAX_CONTROL_FRAME))
    while open_ and (left_s := deadline - time.monotonic()) > 0:
        for fd, _ in poll.poll(left_s * 1000):
            connection, frames = open_[fd]
            if _hear(connection, frames, found):
                poll.unregister(fd)
                del open_[fd]


def _hear(connection: socket.socket, frames: FrameBuffer, found: dict[str, Report]) -> bool:
    """Read the available data; return True if nothing more is expected."""
    try:
        data = connection.recv(1 << 16)
        for body in frames.receive(data):
            reply = _reply.decode(body)
            if isinstance(reply, Statuses):
                found.update((report.id, report) for report in reply.reports)
            return True
    except BlockingIOError:
        return False
    except (OSError, ProtocolError, *UNREADABLE):
        return True
    return not data
