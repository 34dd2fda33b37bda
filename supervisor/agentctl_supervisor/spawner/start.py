"""Starts the spawner.  Needs no event loop, so the spawner starts while ours is imported.

The supervisor never forks: trio has threads, and a fork of a process with threads may deadlock
in the child.  The spawner is started by vfork and exec, has one thread, and stays ready.
"""

import os
import select
import signal
import socket
import subprocess
from collections.abc import Mapping
from typing import Final, Self

import msgspec

from agentctl_protocol.errors import UNREADABLE
from agentctl_protocol.shared_counters import used_up
from agentctl_protocol.spawning import SpawnerReady
from agentctl_supervisor.errors import SpawnError
from agentctl_supervisor.processes import isolated_python, own_limits

READY_WITHIN_S: Final = 30.0
_LEAVES_WITHIN_S: Final = 5.0
_PACKET_BYTES: Final = 1 << 16
_KEPT_VARIABLES: Final = frozenset({"PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "TZ"})


class StartedSpawner:
    """A spawner that was just started: its process, and our end of its request socket.

    As a context manager it ends the spawner, unless the supervisor that got it has done so.

    Raises:
        SpawnError: no process could be started.
    """

    def __init__(self) -> None:
        try:
            self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise _cannot_start(error) from None
        self.requests.setblocking(False)
        try:
            own_pidfd = os.pidfd_open(os.getpid())
        except OSError as error:
            self.requests.close()
            theirs.close()
            raise _cannot_start(error) from None
        try:
            # Popen starts it by vfork and exec, so no state of our threads is copied.  It gets
            # its own session: Ctrl-Z and Ctrl-C of our terminal must not reach the keepers.
            self.process: Final = subprocess.Popen(
                isolated_python.command(
                    "agentctl_child.keepers.spawner",
                    "--request-fd",
                    str(theirs.fileno()),
                    "--supervisor-pidfd",
                    str(own_pidfd),
                    "--supervisor-pid",
                    str(os.getpid()),
                    "--soft-descriptors",
                    str(own_limits.soft_descriptors()),
                    "--room=" + "." * 200,
                ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if os.environ.get("AGENTCTL_DEBUG") else subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), own_pidfd),
                start_new_session=True,
                cwd="/",
                env=_spawner_environment(os.environ),
            )
        except OSError as error:
            self.requests.close()
            raise _cannot_start(error) from None
        finally:
            theirs.close()
            os.close(own_pidfd)
        try:
            self.pidfd: Final = os.pidfd_open(self.process.pid)
        except OSError as error:
            self.requests.close()  # at the end of file the spawner exits by itself
            self.process.wait()
            raise _cannot_start(error) from None

    def __repr__(self) -> str:
        return f"<StartedSpawner {self.process.pid}>"

    def read_ready(self) -> SpawnerReady:
        """Read its first packet, which must have arrived.

        Raises:
            SpawnError: the spawner died and did not send it.
        """
        try:
            return msgspec.msgpack.decode(self.requests.recv(_PACKET_BYTES), type=SpawnerReady)
        except (OSError, *UNREADABLE):
            raise not_ready() from None

    def wait_ready(self, within_s: float = READY_WITHIN_S) -> SpawnerReady:
        """Block until it can fork runs; for a program without an event loop.

        Raises:
            SpawnError: it died first, or sent nothing in time.
        """
        poll = select.poll()
        poll.register(self.requests, select.POLLIN)
        if not poll.poll(within_s * 1000):
            raise not_ready()
        return self.read_ready()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End and reap the spawner, unless that was done already.  Blocks."""
        if self.process.returncode is not None:
            return
        self.requests.close()  # at the end of file the spawner exits by itself
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        if not poll.poll(_LEAVES_WITHIN_S * 1000):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
        self.process.wait()
        os.close(self.pidfd)


def not_ready() -> SpawnError:
    """Return the error for a spawner that does not become ready."""
    return SpawnError(
        "the process that starts runs did not come up", hint="AGENTCTL_DEBUG=1 shows why"
    )


def _cannot_start(error: OSError) -> SpawnError:
    known = used_up(error.errno)
    return SpawnError(
        f"the process that starts runs cannot be started: {error.strerror}",
        hint=f"used up: {known}" if known else "see `ulimit -u` and `ulimit -n`",
    )


def _spawner_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the part of our environment that the keepers get: it has no secrets.

    The environment of a run comes with its launch.
    """
    return {
        name: value
        for name, value in environ.items()
        if name in _KEPT_VARIABLES or name.startswith(("LC_", "AGENTCTL_"))
    }
