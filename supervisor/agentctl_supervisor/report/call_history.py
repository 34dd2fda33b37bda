"""The calls that a run was granted, and what the model calls among them streamed.

Bounded: an agent may make a million calls, and the report of its run must still be one
that a person can open.
"""

from collections import OrderedDict, deque
from collections.abc import Generator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from agentctl_protocol.errors import PeerProtocolError
from agentctl_protocol.messages import CallFinished, CallKind
from agentctl_protocol.records import VerdictRecord
from agentctl_protocol.report import Call
from agentctl_protocol.values import MAX_CONTAINERS, NIL, TooManyPartsError, open_value, opening

MAX_CALLS: Final = 1000
MAX_OPEN_CALLS: Final = 2000
"""Of one more, the one that began first counts as over, and as interrupted."""
MAX_VALUE_BYTES: Final = 4 << 20
MAX_ERROR: Final = 4096
MAX_STREAMED: Final = 1 << 20
"""Characters of streamed text that are kept of each open model call; the rest is counted."""
MAX_STREAMING: Final = 8
"""Model calls whose text is kept at a time; of more, the oldest's is only counted."""
MAX_CUT: Final = 8
SAMPLE: Final = 4096
"""Characters of a text that are kept of one whose rest is only counted."""

OMITTED: Final = "(omitted; it is in the log)"
"""In place of a value that is too long for a report."""

CallOutcome: TypeAlias = Literal["ok", "error", "cancelled"]


@dataclass(slots=True)
class _Granted:
    number: int
    id: str
    kind: CallKind
    name: str
    time_ns: int
    args: msgspec.Raw | None
    result: msgspec.Raw | None
    outcome: CallOutcome | None = None
    error: str = ""
    finished_ns: int = 0
    #: What its values were counted as.
    value_bytes: int = 0
    #: Of a model call: what it streamed so far.
    streamed: list[str] = field(default_factory=list)
    streamed_chars: int = 0
    kept_chars: int = 0
    #: Of whose text only a sample is kept.
    sampled: bool = False
    args_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CutCall:
    """A model call that was cut short, for whoever estimates what it used.

    ``text``: the beginning of what it streamed; ``chars``: the length of all of it.
    ``request_bytes``: how long the request was, also where it is not kept.
    """

    call: str
    model: str
    request: msgspec.Raw | None
    text: str
    chars: int
    request_bytes: int = 0


def _size_of(raw: msgspec.Raw | None) -> int:
    return 0 if raw is None else len(memoryview(raw))


class CallHistory:
    """All open calls, and the last `MAX_CALLS` of the others, in the order of their grants."""

    def __init__(self) -> None:
        #: Calls that are not in the report, because there were too many.
        self.left_out = 0
        self._granted = 0
        self._open: dict[str, _Granted] = {}
        self._over: deque[_Granted] = deque()
        self._with_values: OrderedDict[int, _Granted] = OrderedDict()
        self._value_bytes = 0
        self._models: dict[str, _Granted] = {}
        self._cut: dict[str, CutCall] = {}
        self._estimated: set[str] = set()

    def __repr__(self) -> str:
        return f"<CallHistory {len(self._open)} open, {len(self._over)} over>"

    @property
    def open(self) -> tuple[str, ...]:
        """The ids of the calls that have not finished."""
        return tuple(self._open)

    @property
    def open_model_calls(self) -> tuple[tuple[str, str], ...]:
        """Id and name of each model call that has not finished."""
        return tuple((call.id, call.name) for call in self._open.values() if call.kind == "model")

    @property
    def only_model_call(self) -> str:
        """The id of the model call that is open, if there is one and no other."""
        return next(iter(self._models)) if len(self._models) == 1 else ""

    def begin(self, verdict: VerdictRecord, time_ns: int) -> None:
        """The gate let a call begin."""
        self._granted += 1
        call = _Granted(
            self._granted, verdict.call, verdict.kind, verdict.name, time_ns, verdict.args, NIL
        )
        before = self._open.pop(call.id, None)
        if before is not None:
            self._end(before)
        self._open[call.id] = call
        self._models.pop(call.id, None)
        if call.kind == "model":
            self._models[call.id] = call
            call.args_bytes = _size_of(call.args)
        self._hold(call)
        if len(self._open) > MAX_OPEN_CALLS:
            oldest = self._open.pop(next(iter(self._open)))
            self._models.pop(oldest.id, None)
            self._end(oldest)

    def add_text(self, text: str, call: str) -> None:
        """A model call streamed *text*: the one that is named, or else the only one there is."""
        model = self._models.get(call or self.only_model_call)
        if model is None:
            return
        model.streamed_chars += len(text)
        room = MAX_STREAMED - model.kept_chars
        if room > 0:
            if not model.streamed:
                self._make_room()
            model.streamed.append(text[:room])
            model.kept_chars += min(len(text), room)

    def _make_room(self) -> None:
        """Forget most of the oldest model call's text when there are too many with some."""
        with_text = [c for c in self._models.values() if c.streamed and not c.sampled]
        if len(with_text) >= MAX_STREAMING:
            oldest = with_text[0]
            oldest.streamed = ["".join(oldest.streamed)[:SAMPLE]]
            oldest.kept_chars, oldest.sampled = MAX_STREAMED, True

    def cut_calls(self, *, over: bool) -> list[CutCall]:
        """The model calls that were cut short and that nobody has estimated yet.

        *over*: the run is, so that the open ones are among them.
        """
        open_calls = self._models.values() if over else ()
        estimated = self._estimated
        return [
            *self._cut.values(),
            *(_cut_call(call) for call in open_calls if call.id not in estimated),
        ]

    def on_estimate(self, call: str) -> None:
        """Somebody has estimated *call*."""
        self._cut.pop(call, None)
        if call in self._models:
            self._estimated.add(call)

    def finish(
        self, message: CallFinished, time_ns: int, *, cut: bool = False
    ) -> tuple[CallKind, str] | None:
        """The agent says that a call is over: its kind and name, or None if none is open.

        *cut*: if it is one of a model, what it used has to be estimated.
        """
        call = self._open.pop(message.call, None)
        if call is None:
            return None
        if self._models.pop(call.id, None) is not None and cut:
            self._cut[call.id] = _cut_call(call)
            if len(self._cut) > MAX_CUT:
                del self._cut[next(iter(self._cut))]
        if self._with_values.pop(call.number, None) is not None:
            self._value_bytes -= call.value_bytes
        call.outcome, call.finished_ns = message.outcome, time_ns
        # A copy: the original is a view that keeps all of its message in memory.
        call.result, call.error = msgspec.Raw(bytes(message.result)), message.error[:MAX_ERROR]
        self._hold(call)
        self._end(call)
        return call.kind, call.name

    def calls(
        self, opener: "Opener", *, interrupted: bool
    ) -> Generator[None, None, tuple[Call, ...]]:
        """What the report shows, in steps.

        *interrupted*: the run is over, so what is open stays unfinished for ever.
        """
        every = sorted((*self._over, *self._open.values()), key=lambda call: call.number)
        shown = []
        for call in every:
            yield
            shown.append((yield from _shown(call, opener, interrupted=interrupted)))
        return tuple(shown)

    def _end(self, call: _Granted) -> None:
        self._over.append(call)
        if len(self._over) > MAX_CALLS:
            self._forget_values(self._over.popleft())
            self.left_out += 1

    def _hold(self, call: _Granted) -> None:
        """Count the values of *call*; the oldest are forgotten when there are too many bytes."""
        call.value_bytes = _size_of(call.args) + _size_of(call.result)
        self._value_bytes += call.value_bytes
        self._with_values[call.number] = call
        while self._value_bytes > MAX_VALUE_BYTES:
            self._forget_values(next(iter(self._with_values.values())))

    def _forget_values(self, call: _Granted) -> None:
        if self._with_values.pop(call.number, None) is not None:
            self._value_bytes -= call.value_bytes
            call.args = call.result = None


def _cut_call(call: _Granted) -> CutCall:
    text = "".join(call.streamed)
    return CutCall(call.id, call.name, call.args, text, call.streamed_chars, call.args_bytes)


def _shown(call: _Granted, opener: "Opener", *, interrupted: bool) -> Generator[None, None, Call]:
    started_at = datetime.fromtimestamp(call.time_ns / 1e9, UTC)
    args = yield from opener.open(call.args, f"arguments of call {call.id}")
    if call.outcome is None and not interrupted:
        return Call(call.id, call.kind, call.name, "open", args, started_at=started_at)
    if call.outcome is None:
        # Whoever goes on with this chat needs an answer to each call in it.
        error = f"interrupted: the run ended while {call.name} was at work; side effect unknown"
        return Call(
            call.id, call.kind, call.name, "interrupted", args, {"error": error}, error, started_at
        )
    return Call(
        call.id,
        call.kind,
        call.name,
        call.outcome,
        args,
        (yield from opener.open(call.result, f"result of call {call.id}")),
        call.error,
        started_at,
        max(0.0, (call.finished_ns - call.time_ns) / 1e9),
    )


class Opener:
    """Opens values of a child for a report, within a budget of arrays and maps for all of them.

    ``notes``: a sentence for each value that cannot be shown.
    """

    def __init__(self, most: int) -> None:
        self.notes: list[str] = []
        self._left = most

    def __repr__(self) -> str:
        return f"<Opener, {self._left} arrays and maps left>"

    def open(self, raw: msgspec.Raw | None, what: str) -> Generator[None, None, Any]:
        """The value of *raw*, in steps; None and a note if there is none in it."""
        if raw is None or self._left < 0:
            return OMITTED
        if raw is NIL:
            return None
        most = min(self._left, MAX_CONTAINERS)
        try:
            opened = yield from opening(raw, what, most)
        except TooManyPartsError as error:
            if most < MAX_CONTAINERS:
                self._left = -1
                return OMITTED
            self.notes.append(str(error))
            return None
        except PeerProtocolError as error:
            self.notes.append(str(error))
            return None
        self._left -= opened.containers
        return opened.value


def open_or_note(raw: msgspec.Raw | None, what: str, notes: list[str]) -> Any:
    """The value of *raw*, from a child; if there is none in it, None and a sentence in *notes*."""
    if raw is None:
        return OMITTED
    try:
        return open_value(raw, what)
    except PeerProtocolError as error:
        notes.append(str(error))
        return None
