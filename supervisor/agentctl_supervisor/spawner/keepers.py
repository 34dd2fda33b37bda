"""A run's keepers, as the supervisor holds them: the warden, and init or the agent.

Orders go to the warden by its status socket.  The last rung also goes straight
to the pidfds and the cgroup, so that a warden which was stopped or killed from
outside holds up nothing.
"""

import array
import contextlib
import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from agentctl_protocol.spawning import (
    Contained,
    Deadline,
    Exited,
    Kill,
    Order,
    Refused,
    Status,
    Terminate,
    pack,
)
from agentctl_protocol.vocabulary import Containment
from agentctl_supervisor.event_loop import readiness
from agentctl_supervisor.processes.run_cgroup import RunCgroup

_PACKET_BYTES: Final = 1 << 16
_MAX_FDS: Final = 8
_LAST_WORD_S: Final = 1.0
"""How long a warden may take to report a tree that is already empty."""
_UNREPORTED_S: Final = 10.0

_decoder = msgspec.msgpack.Decoder(Status)


class Keepers:
    """Orders to, and reports from, the keepers of one run.

    ``contained`` is None until there is something that could be killed.
    """

    contained: Contained | None = None

    def __init__(self, status: socket.socket, begin: int, cgroup: RunCgroup | None) -> None:
        """*begin*: the pipe from which a byte lets the agent begin."""
        status.setblocking(False)
        self.cgroup = cgroup
        self._status = status
        self._begin_fd = begin
        self._warden_fd = -1
        self._root_fd = -1
        self._root_watched = trio.Event()

    @property
    def warden_pid(self) -> int | None:
        """The pid of the warden, once there is one."""
        return None if self.contained is None else self.contained.warden.pid

    @property
    def may_leave_orphans(self) -> bool:
        """Whether processes of the run can be left when its warden was killed."""
        contained = self.contained
        return contained is not None and contained.containment is Containment.SUBREAPER

    def __repr__(self) -> str:
        return f"<Keepers {self.contained}>"

    @property
    def root_is_dead(self) -> bool:
        """Whether init, or the agent in the fallback, has ended: the rest is on its way."""
        if self._root_fd < 0:
            return False
        poll = select.poll()
        poll.register(self._root_fd, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def namespace_is_empty(self) -> bool:
        """Whether init is dead: the kernel lets it die as the last one (pid_namespaces(7))."""
        contained = self.contained
        return (
            contained is not None
            and contained.containment is Containment.PID_NAMESPACE
            and self.root_is_dead
        )

    def let_agent_begin(self) -> None:
        """To be called once it is written down whom a stop has to kill.

        Until then a stop from outside of a supervisor that froze could not end the run.
        """
        with contextlib.suppress(OSError):  # its reader is gone: the run is over
            os.write(self._begin_fd, b"\0")

    def terminate(self) -> None:
        """SIGTERM, then SIGCONT, to every process of the run."""
        self._order(Terminate())

    def kill(self) -> None:
        """SIGKILL to every process of the run, by every means at hand."""
        self._order(Kill())
        if self.cgroup is not None:
            self.cgroup.kill()
        if self.contained is not None and self.contained.containment is Containment.PID_NAMESPACE:
            # When init of a pid namespace dies, the kernel kills all others (pid_namespaces(7)).
            _signal(self._root_fd, signal.SIGKILL)
            if self._root_fd >= 0:  # the kernel drops it where we are out of descriptors
                self._root_watched.set()

    def limit_life(self, after_s: float) -> None:
        """Have the warden kill the run by itself in *after_s* seconds, whatever becomes of us."""
        self._order(Deadline(after_s=after_s))

    def _order(self, order: Order) -> None:
        # A warden that somebody stopped cannot obey.
        _signal(self._warden_fd, signal.SIGCONT)
        with contextlib.suppress(OSError):
            self._status.send(pack(order))

    async def follow(self, told: Callable[[Status | None], None]) -> None:
        """Hand every report to *told*; returns after the last.

        None is told instead of a last word when the warden died without one; by
        then init and all in its namespace are gone.  In the subreaper fallback
        the spawner may still be sweeping.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._kill_unresponsive_warden)
            while True:
                await readiness.wait_readable(self._status)
                status = self._receive()
                if isinstance(status, Contained):
                    self.contained = status
                if status is None or isinstance(status, Exited | Refused):
                    nursery.cancel_scope.cancel()
                    break
                told(status)
        # Not before the other task has gone: two may not wait for one pidfd.
        if status is None:
            await self._end_without_warden()
        told(status)

    def _receive(self) -> Status | None:
        fds = array.array("i")
        room = socket.CMSG_SPACE(_MAX_FDS * fds.itemsize)
        try:
            try:
                received = self._status.recvmsg(_PACKET_BYTES, room, socket.MSG_CMSG_CLOEXEC)
            except ConnectionResetError:
                # Told once, before what is still queued, of a warden that died with unread orders.
                received = self._status.recvmsg(_PACKET_BYTES, room, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return None
        packet, ancillary, _, _ = received
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
        status = _decoder.decode(packet) if packet else None
        if isinstance(status, Contained) and len(fds) == 2:
            self._warden_fd, self._root_fd = fds
        else:
            for fd in fds:
                os.close(fd)
        return status

    async def _kill_unresponsive_warden(self) -> None:
        """After a kill: when the tree is empty but the warden does not say so, end the warden.

        It may have been stopped, or starved.  ``follow`` then sees its end.
        """
        await self._root_watched.wait()
        await readiness.wait_readable(self._root_fd)
        await trio.sleep(_LAST_WORD_S)
        _signal(self._warden_fd, signal.SIGKILL)

    async def _end_without_warden(self) -> None:
        self.kill()
        # The agent of the fallback, too: nobody else does it before its spawner, or we, sweep.
        _signal(self._root_fd, signal.SIGKILL)
        if self._root_fd >= 0:
            with trio.move_on_after(_UNREPORTED_S):
                # An init whose parent died is killed by its own watch, too.
                await readiness.wait_readable(self._root_fd)

    async def let_go(self) -> None:
        """Show the warden our end, by which it ends its run, and wait for its own.

        For a run of which nothing was heard yet: it may just be starting.
        """
        self._order(Kill())
        with contextlib.suppress(OSError):
            self._status.shutdown(socket.SHUT_WR)
        with trio.move_on_after(_UNREPORTED_S), contextlib.suppress(OSError):
            while True:
                await trio.lowlevel.wait_readable(self._status)
                if not self._status.recv(_PACKET_BYTES):
                    break

    def close(self) -> None:
        """Close all descriptors.  A run that still lives is killed by its warden."""
        self._status.close()
        for fd in (self._begin_fd, self._warden_fd, self._root_fd):
            if fd >= 0:
                os.close(fd)
        self._begin_fd = self._warden_fd = self._root_fd = -1
        if self.cgroup is not None:
            self.cgroup.remove()
            self.cgroup = None


def _signal(pidfd: int, number: signal.Signals) -> None:
    if pidfd >= 0:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(pidfd, number)
