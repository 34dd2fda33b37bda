"""The spawner, as the supervisor holds it: a clean process that forks runs for us.

The supervisor never forks: trio has threads, and a fork of a process with
threads may deadlock in the child.  The spawner is started with an exec, has
one thread, and stays warm.
"""

import array
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import trio

from agentctl_protocol.errors import UNREADABLE
from agentctl_protocol.spawning import Launch, LaunchPacket, SpawnerReady, pack
from agentctl_supervisor.errors import SpawnError

_READY_WITHIN_S: Final = 30.0
_LEAVES_WITHIN_S: Final = 5.0
_PACKET_BYTES: Final = 1 << 16
_KEPT_VARIABLES: Final = frozenset({"PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "TZ"})


class SpawnerProcess:
    """The spawner and our end of its request socket.

    ``ready`` is what it found out about this machine when it started.
    """

    ready: SpawnerReady

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        own_pidfd = os.pidfd_open(os.getpid())
        try:
            # Popen starts it by vfork and exec: nothing of this process's threads is copied.
            # Its own session: Ctrl-Z and Ctrl-C of our terminal must not reach the keepers.
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-m",
                    "agentctl_child.keepers.spawner",
                    "--request-fd",
                    str(theirs.fileno()),
                    "--supervisor-pidfd",
                    str(own_pidfd),
                    "--supervisor-pid",
                    str(os.getpid()),
                    "--room=" + "." * 200,
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if os.environ.get("AGENTCTL_DEBUG") else subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), own_pidfd),
                start_new_session=True,
                cwd="/",
                env=_spawner_environment(os.environ),
            )
        except BaseException:
            self._socket.close()
            raise
        finally:
            theirs.close()
            os.close(own_pidfd)
        self.pidfd = os.pidfd_open(self._process.pid)

    def __repr__(self) -> str:
        return f"<SpawnerProcess {self.pid}>"

    @property
    def pid(self) -> int:
        """Its process id; it is our child, so the number stays its own until `close`."""
        return self._process.pid

    async def wait_ready(self) -> None:
        """Return once it can fork runs.

        Raises:
            SpawnError: it died first, or said nothing in 30 seconds.
        """
        with trio.move_on_after(_READY_WITHIN_S):
            await trio.lowlevel.wait_readable(self._socket)
            try:
                packet = self._socket.recv(_PACKET_BYTES)
                self.ready = msgspec.msgpack.decode(packet, type=SpawnerReady)
                return
            except (OSError, *UNREADABLE):
                pass
        raise SpawnError(
            "the process that starts runs did not come up",
            hint="AGENTCTL_DEBUG=1 shows why",
        )

    async def launch(self, launch: Launch, fds: Sequence[int], cgroup_fd: int | None) -> None:
        """Have it fork the warden of a run.  *fds* stay ours to close.

        Raises:
            SpawnError: it is dead, or cannot be reached.
        """
        memfd = _sealed(pack(launch))
        try:
            sent = [memfd, *fds, *([] if cgroup_fd is None else [cgroup_fd])]
            packet = pack(
                LaunchPacket(
                    run=launch.run, containment=launch.containment, cgroup=cgroup_fd is not None
                )
            )
            rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", sent))
            while True:
                try:
                    self._socket.sendmsg([packet], [rights])
                    return
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._socket)
        except OSError as error:
            raise SpawnError(f"the process that starts runs is gone: {error.strerror}") from None
        finally:
            os.close(memfd)

    async def wait_dead(self) -> None:
        """Return once it is dead."""
        await trio.lowlevel.wait_readable(self.pidfd)

    async def close(self) -> None:
        """End it and reap it.  Runs that it still has end with it."""
        self._socket.close()  # EOF: it leaves by itself, after sweeping what it must
        with trio.CancelScope(shield=True):
            with trio.move_on_after(_LEAVES_WITHIN_S) as patience:
                await self.wait_dead()
            if patience.cancelled_caught:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
                await self.wait_dead()
        self._process.wait()
        trio.lowlevel.notify_closing(self.pidfd)
        os.close(self.pidfd)

    def is_dead(self) -> bool:
        """Whether it is dead now (a zombie is)."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(0))


def _spawner_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What the keepers may know of our environment: no secrets, a run's own comes with it."""
    return {
        name: value
        for name, value in environ.items()
        if name in _KEPT_VARIABLES or name.startswith(("LC_", "AGENTCTL_"))
    }


def _sealed(data: bytes) -> int:
    """A memfd that holds *data* and can no longer be changed."""
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
