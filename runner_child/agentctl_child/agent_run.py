"""`run`: all that an agent's author needs, in one object.

Works in a function that agentctl runs, in a program that agentctl runs (it connects
at the first use), and outside: there events are dropped, calls granted, and the
input is None, so that an agent can be tried by hand.
"""

import _thread
import atexit
import os
import stat
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Literal, cast

from agentctl_child import outgoing
from agentctl_child.calls import Call
from agentctl_child.cancellation import CancelToken, Interruption, RunCancelled
from agentctl_child.connection import Connection
from agentctl_child.inputs import Inputs
from agentctl_protocol.messages import (
    Artifact,
    Checkpoint,
    Event,
    LogLine,
    Message,
    Progress,
    Ready,
    Start,
    Text,
    Usage,
    UsageQuality,
)
from agentctl_protocol.spawning import CHANNEL_FD_VARIABLE
from agentctl_protocol.values import open_value

MessageKind = Literal["text", "stop", "handoff"]
LogLevel = Literal["debug", "info", "warning", "error"]
_MESSAGE_KINDS: Final = ("text", "stop", "handoff")
_LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_QUALITIES: Final = ("reported", "partial", "estimated", "unknown")


class Run:
    """This run, as its agent sees it.  Safe to use from any thread and any task.

    Once the run is being stopped, every method raises `RunCancelled`, except in code
    that is handling it: there the reporting methods still report.
    """

    def __init__(self) -> None:
        self.cancel_token: Final = CancelToken()
        self._interruption = Interruption(self.cancel_token)
        self._connection: Connection | None = None
        self._is_decided = False
        self._deciding = _thread.allocate_lock()
        self._limits = outgoing.Limits()
        self._id = ""
        self._input: Any = None
        os.register_at_fork(after_in_child=self._leave_to_parent)

    def __repr__(self) -> str:
        return f"<Run {self._id or '(not supervised)'} {self.cancel_token!r}>"

    # --- what it is -------------------------------------------------------

    @property
    def supervised(self) -> bool:
        """Whether agentctl runs this process."""
        return self._connected() is not None

    @property
    def id(self) -> str:
        """The id of the run; empty outside agentctl."""
        self._connected()
        return self._id

    @property
    def input(self) -> Any:
        """What the run was started with; None if nothing."""
        self._connected()
        return self._input

    def inputs(self) -> Inputs:
        """The items sent to the run while it is alive, for ``for`` and for ``async for``.

        Ends when no more can come; each item goes to one iterator only.
        """
        connection = self._connected()
        return Inputs(None if connection is None else connection.inputs)

    # --- what it reports --------------------------------------------------

    def emit_text(self, text: str, source: str = "") -> None:
        """Report a piece of streamed text of any length.

        Raises:
            ValueError: an argument is not a str, or *source* is longer than 256.
            RunCancelled: the run is being stopped.
        """
        text = outgoing.clean(text, "text")
        source = outgoing.label(source, "source")
        piece = self._limits.piece
        if len(text) <= piece:
            self._emit(Text(text=text, source=source), outgoing.weight_of(text, source))
            return
        for at in range(0, len(text), piece):
            part = text[at : at + piece]
            self._emit(Text(text=part, source=source), outgoing.weight_of(part, source))

    def emit_message(
        self, text: str, source: str = "", kind: MessageKind = "text", target: str = ""
    ) -> None:
        """Report a whole message: for people, to stop, or to hand over to *target*.

        Raises:
            ValueError: an argument is not what it should be, or *text* is too long for one
                message: then use `emit_text`.
            RunCancelled: the run is being stopped.
        """
        text = outgoing.clean(text, "text")
        if len(text.encode()) > self._limits.payload:
            raise ValueError(
                f"a message of {len(text.encode())} bytes: at most {self._limits.payload};"
                " emit_text takes any length"
            )
        event = Message(
            text=text,
            source=outgoing.label(source, "source"),
            kind=cast(MessageKind, outgoing.choice(kind, "kind", _MESSAGE_KINDS)),
            target=outgoing.label(target, "target"),
        )
        self._emit(event, outgoing.weight_of(text, source, target))

    def progress(self, done: float, total: float = 0, note: str = "") -> None:
        """Report that *done* of *total* is done; a total of 0 is an unknown one.

        Raises:
            ValueError: a number is not finite.
            RunCancelled: the run is being stopped.
        """
        note = outgoing.shortened(note, "note", outgoing.MAX_NOTE)
        event = Progress(
            done=outgoing.amount(done, "done"), total=outgoing.amount(total, "total"), note=note
        )
        self._emit(event, outgoing.weight_of(note))

    def usage(
        self,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        *,
        model: str = "",
        call: Call | str = "",
        quality: UsageQuality = "reported",
    ) -> None:
        """Report tokens.  With *call* they are that call's totals so far: the last report counts.

        Raises:
            ValueError: a count is negative or no int, or *quality* is not of the list.
            RunCancelled: the run is being stopped.
        """
        call_id = call.id if isinstance(call, Call) else call
        event = Usage(
            model=outgoing.label(model, "model"),
            call=outgoing.label(call_id, "call", longest=128),
            prompt_tokens=outgoing.count(prompt_tokens, "prompt_tokens"),
            completion_tokens=outgoing.count(completion_tokens, "completion_tokens"),
            quality=cast(UsageQuality, outgoing.choice(quality, "quality", _QUALITIES)),
        )
        self._emit(event, outgoing.weight_of(model))

    def checkpoint(self, state: object) -> None:
        """Report a state from which the agent could go on; anything that JSON can say.

        Raises:
            ValueError: it is not JSON, or too big for one message.
            RunCancelled: the run is being stopped.
        """
        raw = outgoing.value(state, "the state")
        size = len(bytes(raw))
        if size > self._limits.payload:
            raise ValueError(
                f"a checkpoint of {size} bytes: at most {self._limits.payload};"
                " write it to a file and name that by run.artifact"
            )
        self._emit(Checkpoint(state=raw), size + outgoing.OVERHEAD)

    def artifact(self, path: str | os.PathLike[str], note: str = "") -> None:
        """Name a file as a product of the run.

        Raises:
            ValueError: *path* is no path or longer than 4096.
            RunCancelled: the run is being stopped.
        """
        try:
            plain = os.fspath(path)
        except TypeError:
            raise ValueError(f"path is a path, not {type(path).__name__}") from None
        text = outgoing.label(plain, "path", empty=False, longest=outgoing.MAX_NOTE)
        note = outgoing.shortened(note, "note", outgoing.MAX_NOTE)
        self._emit(Artifact(path=text, note=note), outgoing.weight_of(text, note))

    def log(self, text: str, level: LogLevel = "info") -> None:
        """Report a diagnostic line, cut at 65,536 characters.

        Raises:
            ValueError: *text* is no str, or *level* is not of the list.
            RunCancelled: the run is being stopped.
        """
        longest = min(outgoing.MAX_LOG_LINE, self._limits.piece)
        line = outgoing.shortened(text, "text", longest)
        checked = cast(LogLevel, outgoing.choice(level, "level", _LOG_LEVELS))
        self._emit(LogLine(text=line, level=checked), outgoing.weight_of(line))

    def flush(self) -> None:
        """Send what was reported; returns when the supervisor's end has it."""
        connection = self._connected()
        if connection is None:
            return
        connection.say()
        self._interruption.check()

    # --- what it asks for -------------------------------------------------

    def tool_call(self, name: str, args: Mapping[str, Any] | object = None) -> Call:
        """A call of the tool *name*, to be entered by ``with`` or ``async with``.

        Raises:
            ValueError: *name* is empty or longer than 256, or *args* are not JSON.
        """
        return Call(self._connected(), self._interruption, "tool", name, args)

    def model_call(self, name: str, request: object = None) -> Call:
        """A call of the model *name*, to be entered by ``with`` or ``async with``.

        Raises:
            ValueError: *name* is empty or longer than 256, or *request* is not JSON.
        """
        return Call(self._connected(), self._interruption, "model", name, request)

    # --- inside -----------------------------------------------------------

    def _emit(self, event: Event, weight: int) -> None:
        connection = self._connection
        if connection is None and (connection := self._connected()) is None:
            return
        if self.cancel_token.is_cancelled:
            self._interruption.check()
        connection.emit(event, weight)

    def _attach(self, connection: Connection, start: Start) -> None:
        """Be the run that *start* describes."""
        self._id = start.run
        self._input = open_value(start.input, "input")
        self._limits = connection.limits
        self._connection = connection
        self._is_decided = True

    def _leave_to_parent(self) -> None:
        """In a forked child of the agent: the run is its parent's.  Nothing before a run began."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.let_go()
            self._interruption.mark_delivered()

    def _connected(self) -> Connection | None:
        if self._is_decided:
            return self._connection
        with self._deciding:
            if not self._is_decided:
                self._connect_program()
            return self._connection

    def _connect_program(self) -> None:
        """Connect a program that agentctl has started, at its first use of `run`."""
        channel_fd = _inherited_channel()
        if channel_fd is None:
            self._is_decided = True
            return
        # Programs started by this one have no use for the number.
        os.environ.pop(CHANNEL_FD_VARIABLE, None)
        with self._interruption.shield:
            self._interruption.install()
            connection = Connection(channel_fd, self._interruption)
            connection.greet()
            start = connection.wait_for_start()
            connection.say(Ready())
            self._attach(connection, start)
            atexit.register(self._leave_program, connection)
            _keep_quiet_about_cancellation()

    def _leave_program(self, connection: Connection) -> None:
        if self._connection is connection:
            connection.leave(cancelled=self.cancel_token.is_cancelled)


def _inherited_channel() -> int | None:
    try:
        number = int(os.environ[CHANNEL_FD_VARIABLE])
        # A grandchild may have the variable but not the descriptor, or another one there.
        return number if stat.S_ISSOCK(os.fstat(number).st_mode) else None
    except (KeyError, ValueError, OSError):
        return None


def _keep_quiet_about_cancellation() -> None:
    """An agent that lets `RunCancelled` pass has done right: no traceback for that."""
    shown = sys.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, where: TracebackType | None
    ) -> None:
        if not issubclass(kind, RunCancelled):
            shown(kind, error, where)

    sys.excepthook = hook


run: Final = Run()
