"""The link of this process to its supervisor: it decides if the process is an agent's.

The decision is made at the first use, because importing the SDK must do nothing. The process of a
function is told (`attach`). A program finds its channel in the environment at its first use of
`run`. Every other process, forks of an agent included, is unsupervised.
"""

import _thread
import atexit
import fcntl
import os
import stat
import sys
from types import TracebackType
from typing import Any, Final

from agentctl_child.sdk import resumed
from agentctl_child.sdk.cancellation import CancelToken, Interruption, RunCancelled
from agentctl_child.sdk.connection import Connection
from agentctl_child.sdk.outgoing import Limits
from agentctl_protocol.messages import Event, Ready, Start
from agentctl_protocol.spawning import CHANNEL_FD_VARIABLE, channel_descriptors
from agentctl_protocol.values import open_value


class Supervision:
    """The link between this process and its supervisor, if it has one."""

    def __init__(self) -> None:
        self.token: Final = CancelToken()
        self.interruption: Final = Interruption(self.token)
        self._limits = Limits()
        self.run_id = ""
        self.input: Any = None
        self.resumed: resumed.Resumed | None = None
        self._connection: Connection | None = None
        self._is_decided = False
        self._deciding = _thread.allocate_lock()
        os.register_at_fork(after_in_child=self._leave_to_parent)

    def __repr__(self) -> str:
        return f"<Supervision {self._connection!r}>"

    @property
    def limits(self) -> Limits:
        """The sizes that fit into one message."""
        if not self._is_decided:
            self.connection()
        return self._limits

    def connection(self) -> Connection | None:
        """Return the connection; None outside agentctl. The first call in a program connects it."""
        if self._is_decided:
            return self._connection
        with self._deciding:
            if not self._is_decided:
                self._connect_program()
            return self._connection

    def emit(self, event: Event, weight: int) -> None:
        """Report *event*, which takes at most *weight* bytes.

        Raises:
            RunCancelled: the run is being stopped, and the caller is not handling that.
        """
        connection = self._connection
        if connection is None and (connection := self.connection()) is None:
            return
        if self.token.is_cancelled:
            self.interruption.check()
        connection.emit(event, weight)

    def attach(self, connection: Connection, start: Start) -> None:
        """Become the process of the run that *start* describes."""
        self.run_id = start.run
        self.input = open_value(start.input, "input")
        self.resumed = None if start.resumed is None else resumed.opened(start.resumed)
        self._limits = connection.limits
        self._connection = connection
        self._is_decided = True

    def _connect_program(self) -> None:
        channel = _inherited_channel()
        if channel is None:
            self._is_decided = True
            return
        # Programs that this one starts must not use these descriptor numbers.
        os.environ.pop(CHANNEL_FD_VARIABLE, None)
        with self.interruption.shield:
            self.interruption.install()
            connection = Connection(channel, self.interruption)
            connection.greet()
            start = connection.wait_for_start()
            connection.say(Ready())
            self.attach(connection, start)
            atexit.register(self._leave_program, connection)
            _keep_quiet_about_cancellation()

    def _leave_program(self, connection: Connection) -> None:
        if self._connection is connection:
            connection.leave(cancelled=self.token.is_cancelled)

    def _leave_to_parent(self) -> None:
        """Leave the run to the parent process; called in a forked child.

        Two processes that write into one stream would tear each other's frames.
        """
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.let_go()
            self.interruption.mark_delivered()


def _inherited_channel() -> tuple[int, int] | None:
    try:
        channel = reads, writes = channel_descriptors(os.environ[CHANNEL_FD_VARIABLE])
        # A grandchild may have the variable but not the descriptors, or other files under the
        # numbers.
        is_channel = (
            _is_pipe(reads, os.O_RDONLY)
            and _is_pipe(writes, os.O_WRONLY)
            # Two pipes: the first pipe that a program makes often has these same numbers.
            and not os.path.sameopenfile(reads, writes)
        )
    except (KeyError, ValueError, OSError):
        return None
    return channel if is_channel else None


def _is_pipe(descriptor: int, access: int) -> bool:
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    return stat.S_ISFIFO(os.fstat(descriptor).st_mode) and flags & os.O_ACCMODE == access


def _keep_quiet_about_cancellation() -> None:
    """Suppress the traceback of `RunCancelled`: an agent that lets it pass behaves correctly."""
    shown = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        if not issubclass(kind, RunCancelled):
            shown(kind, error, where)

    sys.excepthook = hook


supervision: Final = Supervision()
