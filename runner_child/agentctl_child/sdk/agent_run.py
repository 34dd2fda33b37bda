"""The `run` object, which holds everything that an agent's author needs.

It works in a function that agentctl runs, and in a program that agentctl runs (there it connects
at the first use). It also works outside agentctl, so that an agent can be tried by hand: there
events are dropped, calls are granted, and the input is None.
"""

import os
from typing import Any, Final, Literal, cast

from agentctl_child.sdk import outgoing
from agentctl_child.sdk.calls import Call
from agentctl_child.sdk.cancellation import CancelToken
from agentctl_child.sdk.inputs import Inputs
from agentctl_child.sdk.resumed import Resumed
from agentctl_child.sdk.supervision import Supervision, supervision
from agentctl_protocol.messages import (
    Artifact,
    CallKind,
    Checkpoint,
    LogLine,
    Message,
    Progress,
    Text,
    Usage,
    UsageQuality,
)

MessageKind = Literal["text", "stop", "handoff"]
LogLevel = Literal["debug", "info", "warning", "error"]
_MESSAGE_KINDS: Final = ("text", "stop", "handoff")
_LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_QUALITIES: Final = ("reported", "partial", "estimated", "unknown")


class Run:
    """The run, as its agent sees it. Safe to use from any thread and any task.

    Once the run is being stopped, every method that reports, asks or waits raises `RunCancelled`.
    The exception is code that is handling it: there the reporting methods still report.
    """

    def __init__(self, supervision: Supervision) -> None:
        self._supervision = supervision

    def __repr__(self) -> str:
        return f"<Run {self._supervision.run_id or '(not supervised)'} {self._supervision.token!r}>"

    # --- what it is -------------------------------------------------------

    @property
    def supervised(self) -> bool:
        """True if agentctl runs this process."""
        return self._supervision.connection() is not None

    @property
    def id(self) -> str:
        """The id of the run; empty outside agentctl."""
        self._supervision.connection()
        return self._supervision.run_id

    @property
    def input(self) -> Any:
        """The input that the run was started with; None if there is none."""
        self._supervision.connection()
        return self._supervision.input

    @property
    def resumed(self) -> Resumed | None:
        """The earlier run that this one continues (``agentctl resume``), or None."""
        self._supervision.connection()
        return self._supervision.resumed

    @property
    def cancel_token(self) -> CancelToken:
        """The token that tells if the run is being stopped."""
        self._supervision.connection()
        return self._supervision.token

    def inputs(self) -> Inputs:
        """Return the items sent to the run while it is alive, for ``for`` and for ``async for``.

        The iteration ends when no more items can come. Each item goes to one iterator only.
        """
        connection = self._supervision.connection()
        return Inputs(None if connection is None else connection.inputs)

    # --- what it reports --------------------------------------------------

    def emit_text(self, text: str, source: str = "", call: Call | None = None) -> None:
        """Report a piece of streamed text of any length.

        *call* is the model call that the text comes from. It is needed if several calls run at
        once.

        Raises:
            ValueError: an argument is not a str, or *source* is longer than 256.
            RunCancelled: the run is being stopped.
        """
        text = outgoing.clean(text, "text")
        source = outgoing.label(source, "source")
        piece = self._supervision.limits.piece
        at = "" if call is None else call.id
        if len(text) <= piece:
            event = Text(text=text, source=source, call=at)
            self._supervision.emit(event, outgoing.weight_of(text, source))
            return
        for start in range(0, len(text), piece):
            part = text[start : start + piece]
            event = Text(text=part, source=source, call=at)
            self._supervision.emit(event, outgoing.weight_of(part, source))

    def emit_message(
        self, text: str, source: str = "", kind: MessageKind = "text", target: str = ""
    ) -> None:
        """Report a whole message: for people, to stop, or to hand over to *target*.

        Raises:
            ValueError: an argument is invalid, or *text* is too long for one message; then use
                `emit_text`.
            RunCancelled: the run is being stopped.
        """
        text = outgoing.clean(text, "text")
        size, most = len(text.encode()), self._supervision.limits.payload
        if size > most:
            raise ValueError(
                f"a message of {size} bytes: at most {most}; emit_text takes any length"
            )
        event = Message(
            text=text,
            source=outgoing.label(source, "source"),
            kind=cast(MessageKind, outgoing.choice(kind, "kind", _MESSAGE_KINDS)),
            target=outgoing.label(target, "target"),
        )
        self._supervision.emit(event, outgoing.weight_of(text, source, target))

    def progress(self, done: float, total: float = 0, note: str = "") -> None:
        """Report that *done* of *total* is done; a total of 0 means that the total is unknown.

        Raises:
            ValueError: a number is not finite.
            RunCancelled: the run is being stopped.
        """
        note = outgoing.shortened(note, "note", outgoing.MAX_NOTE)
        event = Progress(
            done=outgoing.amount(done, "done"), total=outgoing.amount(total, "total"), note=note
        )
        self._supervision.emit(event, outgoing.weight_of(note))

    def usage(
        self,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        *,
        model: str = "",
        call: Call | str = "",
        quality: UsageQuality = "reported",
    ) -> None:
        """Report tokens.

        With *call* they are the totals of that call so far: the last report counts.

        Raises:
            ValueError: a count is negative or not an int, or *quality* is not in the list.
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
        self._supervision.emit(event, outgoing.weight_of(model))

    def checkpoint(self, state: object) -> None:
        """Report a state from which the agent could continue: any value that JSON can represent.

        Raises:
            ValueError: the state is not JSON, or too big for one message.
            RunCancelled: the run is being stopped.
        """
        raw = outgoing.value(state, "the state")
        size, most = len(bytes(raw)), self._supervision.limits.payload
        if size > most:
            raise ValueError(
                f"a checkpoint of {size} bytes: at most {most};"
                " write it to a file and name that by run.artifact"
            )
        self._supervision.emit(Checkpoint(state=raw), size + outgoing.OVERHEAD)

    def artifact(self, path: str | os.PathLike[str], note: str = "") -> None:
        """Name a file as a product of the run.

        Raises:
            ValueError: *path* is not a path, or is longer than 4096.
            RunCancelled: the run is being stopped.
        """
        try:
            plain = os.fspath(path)
        except TypeError:
            raise ValueError(f"path is a path, not {type(path).__name__}") from None
        text = outgoing.path(plain)
        note = outgoing.shortened(note, "note", outgoing.MAX_NOTE)
        self._supervision.emit(Artifact(path=text, note=note), outgoing.weight_of(text, note))

    def log(self, text: str, level: LogLevel = "info") -> None:
        """Report a diagnostic line, cut at 65,536 characters.

        Raises:
            ValueError: *text* is not a str, or *level* is not in the list.
            RunCancelled: the run is being stopped.
        """
        longest = min(outgoing.MAX_LOG_LINE, self._supervision.limits.piece)
        line = outgoing.shortened(text, "text", longest)
        checked = cast(LogLevel, outgoing.choice(level, "level", _LOG_LEVELS))
        self._supervision.emit(LogLine(text=line, level=checked), outgoing.weight_of(line))

    def flush(self) -> None:
        """Send the queued reports; return when they are written to the channel."""
        connection = self._supervision.connection()
        if connection is None:
            return
        connection.say()
        self._supervision.interruption.check()

    # --- what it asks for -------------------------------------------------

    def tool_call(self, name: str, args: object = None) -> Call:
        """Return a call of the tool *name*, to be entered by ``with`` or ``async with``.

        Raises:
            ValueError: *name* is empty or longer than 256, or *args* are not JSON.
        """
        return self._call("tool", name, args)

    def model_call(self, name: str, request: object = None) -> Call:
        """Return a call of the model *name*, to be entered by ``with`` or ``async with``.

        Raises:
            ValueError: *name* is empty or longer than 256, or *request* is not JSON.
        """
        return self._call("model", name, request)

    def _call(self, kind: CallKind, name: str, args: object) -> Call:
        link = self._supervision
        return Call(link.connection(), link.interruption, kind, name, args)


run: Final = Run(supervision)
