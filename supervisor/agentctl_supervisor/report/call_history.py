"""Keeps the granted calls of a run, and the text that its model calls streamed.

Bounded: an agent may make a million calls, and a person must still be able to open the
report of the run.
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
"""Open calls that are tracked.  One more makes the oldest one count as over, and interrupted."""
MAX_VALUE_BYTES: Final = 4 << 20
MAX_ERROR: Final = 4096
MAX_STREAMED: Final = 1 << 20
"""Characters of streamed text kept for each open model call; the rest is only counted."""
MAX_STREAMING: Final = 8
"""Model calls whose text is kept at a time.  One more makes the oldest text only counted."""
MAX_CUT: Final = 8
SAMPLE: Final = 4096
"""Characters that are kept of a text whose rest is only counted."""

OMITTED: Final = "(omitted; it is in the log)"
"""The replacement for a value that is too long for a report."""

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
    #: The size of its values, as added to the total.
    value_bytes: int = 0
    #: The text that a model call streamed so far.
    streamed: list[str] = field(default_factory=list)
    streamed_chars: int = 0
    kept_chars: int = 0
    #: True if only a sample of its text is kept.
    sampled: bool = False
    args_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CutCall:
    """A model call that was cut short, with the data for an estimate of its usage.

    ``text``: the beginning of the text that it streamed; ``chars``: the length of the whole text.
    ``request_bytes``: the length of the request, also if the request is not kept.
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
    """The open calls, and the last `MAX_CALLS` of the others, in the order of their grants."""

    def __init__(self) -> None:
        #: The number of calls left out of the report, because there were too many.
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
        """The id and name of each model call that has not finished."""
        return tuple((call.id, call.name) for call in self._open.values() if call.kind == "model")

    @property
    def only_model_call(self) -> str:
        """The id of the open model call if there is exactly one, or else an empty text."""
        return next(iter(self._models)) if len(self._models) == 1 else ""

    def begin(self, verdict: VerdictRecord, time_ns: int) -> None:
        """Add a call that the gate granted."""
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
        """Add streamed *text* to the model call *call*, or else to the only one that is open."""
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
        """Forget most text of the oldest model call if too many calls have text."""
        with_text = [c for c in self._models.values() if c.streamed and not c.sampled]
        if len(with_text) >= MAX_STREAMING:
            oldest = with_text[0]
            oldest.streamed = ["".join(oldest.streamed)[:SAMPLE]]
            oldest.kept_chars, oldest.sampled = MAX_STREAMED, True

    def cut_calls(self, *, over: bool) -> list[CutCall]:
        """Return the model calls that were cut short and have no estimate yet.

        *over*: the run is over, so the open model calls were cut short too.
        """
        open_calls = self._models.values() if over else ()
        estimated = self._estimated
        return [
            *self._cut.values(),
            *(_cut_call(call) for call in open_calls if call.id not in estimated),
        ]

    def on_estimate(self, call: str) -> None:
        """Note that *call* has an estimate."""
        self._cut.pop(call, None)
        if call in self._models:
            self._estimated.add(call)

    def finish(
        self, message: CallFinished, time_ns: int, *, cut: bool = False
    ) -> tuple[CallKind, str] | None:
        """Finish a call as the agent reports; return its kind and name, or None if it is not open.

        *cut*: if it is a model call, it was cut short and its usage has to be estimated.
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
        # A copy: the original is a view that keeps the whole message in memory.
        call.result, call.error = msgspec.Raw(bytes(message.result)), message.error[:MAX_ERROR]
        self._hold(call)
        self._end(call)
        return call.kind, call.name

    def calls(
        self, opener: "Opener", *, interrupted: bool
    ) -> Generator[None, None, tuple[Call, ...]]:
        """Make the calls as the report shows them, in steps.

        *interrupted*: the run is over, so the open calls will never finish.
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
        """Count the values of *call*; forget the oldest values if there are too many bytes."""
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
        # A program that continues this chat needs an answer to each call in it.
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
    """The decoder of a child's values for a report, with one budget of arrays and maps for all.

    ``notes``: a sentence for each value that cannot be shown.
    """

    def __init__(self, most: int) -> None:
        self.notes: list[str] = []
        self._left = most

    def __repr__(self) -> str:
        return f"<Opener, {self._left} arrays and maps left>"

    def open(self, raw: msgspec.Raw | None, what: str) -> Generator[None, None, Any]:
        """Decode *raw* in steps; return None and add a note if it is not a valid value."""
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
    """Decode *raw*, from a child; return None and add to *notes* if it is not a valid value."""
    if raw is None:
        return OMITTED
    try:
        return open_value(raw, what)
    except PeerProtocolError as error:
        notes.append(str(error))
        return None
