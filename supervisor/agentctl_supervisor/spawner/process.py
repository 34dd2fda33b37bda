"""The supervisor's handle on the spawner: a clean process that forks runs for us."""

import array
import contextlib
import errno
import os
import select
import signal
import socket
from collections.abc import Sequence
from typing import Final

import trio

from agentctl_protocol.shared_counters import used_up
from agentctl_protocol.spawning import Launch, LaunchPacket, SpawnerReady, pack
from agentctl_supervisor.errors import SpawnError, cannot_start
from agentctl_supervisor.event_loop import readiness
from agentctl_supervisor.processes import own_limits
from agentctl_supervisor.spawner.start import READY_WITHIN_S, StartedSpawner, not_ready

_LEAVES_WITHIN_S: Final = 5.0


class SpawnerProcess:
    """The spawner and our end of its request socket.

    ``ready`` is what the spawner found out about this machine when it started.

    Raises:
        SpawnError: no spawner was *started* yet, and none can be started.
    """

    ready: SpawnerReady

    def __init__(self, started: StartedSpawner | None = None) -> None:
        started = started or StartedSpawner()
        self._socket, self._process = started.requests, started.process
        self.pidfd: Final = started.pidfd
        self._started: Final = started
        self._closed = self._reaped = False
        # A burst of runs fills the socket, and two tasks must not wait for one descriptor.
        self._sending = trio.Lock()

    def __repr__(self) -> str:
        return f"<SpawnerProcess {self.pid}>"

    @property
    def pid(self) -> int:
        """Its process id, which is not reused until `close`, because the spawner is our child."""
        return self._process.pid

    async def wait_ready(self) -> None:
        """Wait until it can fork runs.

        Raises:
            SpawnError: it died first, or sent nothing in 30 seconds.
        """
        with trio.move_on_after(READY_WITHIN_S) as patience:
            await readiness.wait_readable(self._socket)
        if patience.cancelled_caught:
            raise not_ready()
        self.ready = self._started.read_ready()

    async def launch(self, launch: Launch, fds: Sequence[int], cgroup_fd: int | None) -> None:
        """Let it fork the warden of a run.  The caller still has to close *fds*.

        Raises:
            SpawnError: it is dead or cannot be reached, or we are out of descriptors.
        """
        try:
            memfd = _sealed(pack(launch))
        except OSError as error:
            raise cannot_start(error) from None
        try:
            sent = [memfd, *fds, *([] if cgroup_fd is None else [cgroup_fd])]
            packet = pack(
                LaunchPacket(
                    run=launch.run, containment=launch.containment, cgroup=cgroup_fd is not None
                )
            )
            async with self._sending:
                while not self._send(packet, sent):
                    await readiness.wait_writable(self._socket)
        except OSError as error:
            if used_up(error.errno):
                raise cannot_start(error) from None
            raise SpawnError(f"the process that starts runs is gone: {error.strerror}") from None
        finally:
            os.close(memfd)

    def _send(self, packet: bytes, fds: Sequence[int]) -> bool:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))
        try:
            try:
                self._socket.sendmsg([packet], [rights])
            except OSError as error:
                if error.errno != errno.ETOOMANYREFS:
                    raise
                with own_limits.sending_more():
                    self._socket.sendmsg([packet], [rights])
        except BlockingIOError:
            return False
        return True

    async def wait_dead(self) -> None:
        """Wait until it is dead.  Any number of tasks may wait."""
        if self._reaped:
            return
        await readiness.wait_readable(self.pidfd, alone=False)

    async def close(self, *, now: bool = False) -> None:
        """End and reap the spawner.  Its remaining runs end with it.

        *now*: it has no runs, so it needs no time to sweep.
        """
        self._socket.close()  # at the end of file it sweeps, then exits by itself
        self._closed = True
        with trio.CancelScope(shield=True):
            with trio.move_on_after(0 if now else _LEAVES_WITHIN_S) as patience:
                await self.wait_dead()
            if patience.cancelled_caught:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
                await self.wait_dead()
        self._process.wait()
        os.close(self.pidfd)
        self._reaped = True

    def is_dead(self) -> bool:
        """Return True if it is dead now; a zombie is dead."""
        if self._closed:
            return True
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(0))


def _sealed(data: bytes) -> int:
    """Return a memfd that holds *data* and can no longer be changed."""
    import fcntl

    fd = os.memfd_create("agentctl-launch", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        fcntl.fcntl(
            fd,
            fcntl.F_ADD_SEALS,
            fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE,
        )
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd
