"""The messages between the agent's side and the supervisor.

They are frozen with the first release and evolve only by additions. A new field has a default, a
new message has a new tag. Both sides tolerate unknown fields. Unknown tags from the child are an
error: it cannot know more than the supervisor.

A frame's body is one message or an array of messages. A message is a msgpack map whose ``type``
names it. ``docs/protocol.md`` says the same for programs in other languages.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from agentctl_protocol.values import NIL

PROTOCOL_VERSION: Final = 1

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
CallId = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
CallKind = Literal["model", "tool"]
UsageQuality = Literal["reported", "partial", "estimated", "unknown"]


class _Said(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", gc=False):
    """A message without any part that could belong to a reference cycle."""


# --- events: what an agent reports while it works -------------------------


class Text(_Said, frozen=True, tag="text"):
    """A piece of streamed output; pieces of one message follow each other.

    ``call``: the model call that the piece comes from. It is needed if several calls run at once,
    so that the output of each call can be counted if the call is cut short.
    """

    text: str
    source: str = ""
    call: str = ""


class Message(_Said, frozen=True, tag="message"):
    """A whole message: to people (``text``), to stop (``stop``) or to hand over (``handoff``)."""

    text: str
    source: str = ""
    kind: Literal["text", "stop", "handoff"] = "text"
    target: str = ""


class Progress(_Said, frozen=True, tag="progress"):
    """The progress of the work: ``done`` of ``total`` (0 = unknown), with a note for people."""

    done: float = 0.0
    total: float = 0.0
    note: str = ""


class Usage(_Said, frozen=True, tag="usage"):
    """Tokens used. With a call id these are that call's running totals, so the last one counts."""

    model: str = ""
    call: str = ""
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    quality: UsageQuality = "reported"


class Checkpoint(_Said, frozen=True, tag="checkpoint"):
    """A state from which the agent could continue; the last one is in the report."""

    state: msgspec.Raw = NIL


class Artifact(_Said, frozen=True, tag="artifact"):
    """A file that the agent names as a product of the run."""

    path: str
    note: str = ""


class LogLine(_Said, frozen=True, tag="log"):
    """A diagnostic line from the agent itself."""

    text: str
    level: Literal["debug", "info", "warning", "error"] = "info"


Event: TypeAlias = Text | Message | Progress | Usage | Checkpoint | Artifact | LogLine


# --- child → supervisor ---------------------------------------------------


class Hello(_Said, frozen=True, tag="hello"):
    """The first message. A version other than ours ends the run with reason ``protocol``."""

    version: int
    sdk: str = ""


class Ready(_Said, frozen=True, tag="ready"):
    """The agent's code is loaded; its first line is about to run."""


class Events(_Said, frozen=True, tag="events"):
    """A batch of events. ``first`` numbers the first of them; they count from 1 without gaps."""

    first: Annotated[int, msgspec.Meta(ge=1)]
    events: Annotated[list[Event], msgspec.Meta(min_length=1)]


class Ask(_Said, frozen=True, tag="ask"):
    """A request to make this call, answered by exactly one `Verdict` with the same call id."""

    call: CallId
    kind: CallKind
    name: Name
    args: msgspec.Raw = NIL


class CallFinished(_Said, frozen=True, tag="call_finished"):
    """A granted call is over. ``cancelled`` means: cut short, the side effect is unknown."""

    call: CallId
    outcome: Literal["ok", "error", "cancelled"] = "ok"
    result: msgspec.Raw = NIL
    error: str = ""


class Beat(_Said, frozen=True, tag="beat"):
    """A sign of life: ``thread`` counts the channel thread's, ``loop`` the event loop's turns."""

    thread: Count = 0
    loop: Count = 0


class ResultMessage(_Said, frozen=True, tag="result"):
    """The agent's function returned this value."""

    value: msgspec.Raw = NIL


class ErrorMessage(_Said, frozen=True, tag="error"):
    """The agent's function raised, or could not be loaded (``loading``)."""

    kind: Name
    text: str = ""
    traceback: str = ""
    loading: bool = False


class Bye(_Said, frozen=True, tag="bye"):
    """The last message. ``cancelled``: the agent ends because it was asked to."""

    cancelled: bool = False


ChildMessage: TypeAlias = (
    Hello | Ready | Events | Ask | CallFinished | Beat | ResultMessage | ErrorMessage | Bye
)


# --- supervisor → child ---------------------------------------------------


class PastCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of the earlier run that is continued.

    ``interrupted``: the call's side effect is unknown, and the supervisor made the ``result`` so
    that a chat history stays valid. No call is repeated automatically, not even such a call.
    """

    id: str
    kind: CallKind
    name: str
    outcome: Literal["ok", "error", "cancelled", "interrupted"]
    args: msgspec.Raw = NIL
    result: msgspec.Raw = NIL
    error: str = ""


class Resumed(msgspec.Struct, frozen=True, omit_defaults=True):
    """The earlier run that this one continues: its last checkpoint, and its calls.

    If the earlier run ended before its own first checkpoint, it passes on the checkpoint of the
    run that it continued itself. It also passes on the calls of that run; their ids begin with
    that run's id: ``r-aaaaaaaa/c1``.

    ``calls``: in order; the oldest are left out if there are too many. ``text``: the end of the
    text that it streamed after its last whole message.
    """

    run: str
    result: str = ""
    checkpoint: msgspec.Raw = NIL
    calls: tuple[PastCall, ...] = ()
    calls_left_out: Count = 0
    text: str = ""


class Start(_Said, frozen=True, tag="start"):
    """The answer to hello: what to run. A program (argv) may ignore all but ``input``.

    ``resumed``: the earlier run that this one continues.
    """

    run: str
    version: int = PROTOCOL_VERSION
    target: str = ""
    input: msgspec.Raw = NIL
    paths: tuple[str, ...] = ()
    max_frame: int = 1 << 20
    resumed: Resumed | None = None


class Cancel(_Said, frozen=True, tag="cancel"):
    """A request to end within ``deadline_s`` seconds; SIGTERM follows."""

    reason: str
    deadline_s: Seconds
    detail: str = ""


class Verdict(_Said, frozen=True, tag="verdict"):
    """The answer to an `Ask`. ``why`` names what refused it."""

    call: CallId
    verdict: Literal["granted", "refused"]
    why: str = ""


class Input(_Said, frozen=True, tag="input"):
    """An item sent to a running agent."""

    data: msgspec.Raw


class InputEnd(_Said, frozen=True, tag="input_end"):
    """The end of the input: no more items follow."""


class Ack(_Said, frozen=True, tag="ack"):
    """A confirmation that all events up to number ``seq`` have reached the disk."""

    seq: Count


class Ping(_Said, frozen=True, tag="ping"):
    """A request for a sign of life; answered with a `Beat`."""


SupervisorMessage: TypeAlias = Start | Cancel | Verdict | Input | InputEnd | Ack | Ping
