"""The supervisor's handles on a run's keepers: the warden, and init or the agent.

Orders go to the warden over its status socket.  A kill also goes directly to the pidfds and the
cgroup, so that a warden that was stopped or killed from outside delays nothing.
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
"""The seconds that a warden may take to report a tree that is already empty."""
_UNREPORTED_S: Final = 10.0

_decoder = msgspec.msgpack.Decoder(Status)


class Keepers:
    """Sends orders to the keepers of one run, and receives their reports.

    ``contained`` is None until there is a process that could be killed.
    """

    contained: Contained | None = None

    def __init__(self, status: socket.socket, begin: int, cgroup: RunCgroup | None) -> None:
        """Take over the descriptors.  *begin*: a pipe; a byte in it lets the agent begin."""
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
        """True if processes of the run can be left after its warden was killed."""
        contained = self.contained
        return contained is not None and contained.containment is Containment.SUBREAPER

    def __repr__(self) -> str:
        return f"<Keepers {self.contained}>"

    @property
    def root_is_dead(self) -> bool:
        """True if init, or the agent in the fallback, has ended: the other processes follow."""
        if self._root_fd < 0:
            return False
        poll = select.poll()
        poll.register(self._root_fd, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def namespace_is_empty(self) -> bool:
        """True if init is dead: it dies last in its namespace (pid_namespaces(7))."""
        contained = self.contained
        return (
            contained is not None
            and contained.containment is Containment.PID_NAMESPACE
            and self.root_is_dead
        )

    def let_agent_begin(self) -> None:
        """Let the agent begin.  Call it after the processes that a stop must kill are logged.

        Before that, if the supervisor froze, a client could not end the run in its place.
        """
        with contextlib.suppress(OSError):  # the reader of the pipe is gone: the run is over
            os.write(self._begin_fd, b"\0")
        # The byte stays in the pipe.  Each live run would keep the descriptor otherwise.
        os.close(self._begin_fd)
        self._begin_fd = -1

    def terminate(self) -> None:
        """Send SIGTERM, then SIGCONT, to every process of the run."""
        self._order(Terminate())

    def kill(self) -> None:
        """Send SIGKILL to every process of the run, by every available means."""
        self._order(Kill())
        if self.cgroup is not None:
            self.cgroup.kill()
        if self.contained is not None and self.contained.containment is Containment.PID_NAMESPACE:
            # When init of a pid namespace dies, the kernel kills all others (pid_namespaces(7)).
            _signal(self._root_fd, signal.SIGKILL)
            if self._root_fd >= 0:  # the kernel drops it if we are out of descriptors
                self._root_watched.set()

    def limit_life(self, after_s: float) -> None:
        """Let the warden kill the run by itself in *after_s* seconds, even if we are frozen."""
        self._order(Deadline(after_s=after_s))

    def _order(self, order: Order) -> None:
        # A warden that was stopped by a signal cannot obey.
        _signal(self._warden_fd, signal.SIGCONT)
        with contextlib.suppress(OSError):
            self._status.send(pack(order))

    async def follow(self, told: Callable[[Status | None], None]) -> None:
        """Hand every report to *told*, and return after the last.

        If the warden died without a last report, *told* gets None instead.  By then init and all
        processes in its namespace are gone.  In the subreaper fallback the spawner may still be
        sweeping.
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
        # After the end of the other task, because two tasks must not wait for one pidfd.
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
                # The warden died with unread orders.  The kernel reports this once, before the
                # packets that are still queued.
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
        """Kill the warden if, after a kill, the tree is empty but the warden does not report it.

        It may have been stopped by a signal, or got no CPU.  ``follow`` then sees its end.
        """
        await self._root_watched.wait()
        await readiness.wait_readable(self._root_fd)
        await trio.sleep(_LAST_WORD_S)
        _signal(self._warden_fd, signal.SIGKILL)

    async def _end_without_warden(self) -> None:
        self.kill()
        # Kill the agent of the fallback, too: otherwise it lives until its spawner, or we, sweep.
        _signal(self._root_fd, signal.SIGKILL)
        if self._root_fd >= 0:
            with trio.move_on_after(_UNREPORTED_S):
                # Init also watches for its parent's death, and then ends.
                await readiness.wait_readable(self._root_fd)

    async def let_go(self) -> None:
        """Close our sending side, so that the warden ends its run, and wait for the warden's end.

        For a run that has sent no report yet, because it may just be starting.
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
        """Close all descriptors.  A run that is still alive is then killed by its warden."""
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
