"""Identifies the client of a control connection, and checks that it is still there.

Only a person may decide on a call.  A run that can reach the control socket could let one of its
processes connect and die, and then use the connection that this process left.  So the process
that connected must be alive, and still connected, when the decision is made.
"""

import contextlib
import errno
import os
import select
import socket
import struct
from typing import Final, NamedTuple

import trio

from agentctl_supervisor.processes.process_tree import identity_of, is_alive

_SO_PEERPIDFD: Final = 77  # Linux 6.5, include/uapi/asm-generic/socket.h
_SO_PASSRIGHTS: Final = 83  # Linux 6.16
_UCRED: Final = struct.Struct("3i")  # pid, uid, gid: struct ucred, unix(7)


class Peer(NamedTuple):
    """The process that connected.  ``pid`` is 0 if our pid namespace cannot see it."""

    pid: int
    uid: int


def peer_of(connection: trio.socket.SocketType) -> Peer:
    """Return the process that made *connection*; another one may use it now."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _ = _UCRED.unpack(credentials)
    return Peer(pid, uid)


def take_no_descriptors(listener: socket.socket) -> None:
    """Let the kernel refuse descriptors on connections that *listener* accepts from now on.

    A run at level basic can reach the socket, and the last close of a descriptor can take
    seconds.  Before Linux 6.16 there is no way to refuse them.
    """
    with contextlib.suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)


def is_alive_still(connection: trio.socket.SocketType) -> bool:
    """Return True if the process that made *connection* is alive.

    Before Linux 6.5, return True if any process has its pid.
    """
    try:
        pidfd = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:  # ESRCH: it is dead; other errors: not known
            return False
        identity = identity_of(peer_of(connection).pid)
        return identity is not None and is_alive(identity)
    try:
        return not _polled(pidfd, select.POLLIN)
    finally:
        os.close(pidfd)


def has_hung_up(connection: trio.socket.SocketType) -> bool:
    """Return True if the client has closed the connection.

    Such a client has told its user that there was no answer.
    """
    return bool(
        _polled(connection.fileno(), select.POLLRDHUP) & (select.POLLRDHUP | select.POLLHUP)
    )


def _polled(descriptor: int, wanted: int) -> int:
    poll = select.poll()
    poll.register(descriptor, wanted)
    return next((found for _, found in poll.poll(0)), 0)
