"""Who is at the other end of a control connection, and whether they still are.

A decision on a call is a person's.  A run that reaches the control socket could have a
process connect and die, and then speak over what that one left behind: so whoever decides
has to be alive, and there, when the decision is made.
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
    """Who connected.  ``pid`` is 0 for a process of a namespace that ours cannot see."""

    pid: int
    uid: int


def peer_of(connection: trio.socket.SocketType) -> Peer:
    """Who *connection* was made by, which need not be who uses it now."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _ = _UCRED.unpack(credentials)
    return Peer(pid, uid)


def take_no_descriptors(listener: socket.socket) -> None:
    """Have the kernel refuse descriptors on connections that *listener* accepts from now on.

    A run at basic reaches it, and the last close of a descriptor can take seconds.  Before
    Linux 6.16 there is no way to refuse them.
    """
    with contextlib.suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)


def is_alive_still(connection: trio.socket.SocketType) -> bool:
    """Whether the very process that made *connection* is alive.

    Before Linux 6.5: whether some process has its number.
    """
    try:
        pidfd = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:  # ESRCH: it is dead; else we cannot know
            return False
        identity = identity_of(peer_of(connection).pid)
        return identity is not None and is_alive(identity)
    try:
        return not _polled(pidfd, select.POLLIN)
    finally:
        os.close(pidfd)


def has_hung_up(connection: trio.socket.SocketType) -> bool:
    """Whether nobody waits for an answer any more: they were told that there is none."""
    return bool(
        _polled(connection.fileno(), select.POLLRDHUP) & (select.POLLRDHUP | select.POLLHUP)
    )


def _polled(descriptor: int, wanted: int) -> int:
    poll = select.poll()
    poll.register(descriptor, wanted)
    return next((found for _, found in poll.poll(0)), 0)
