"""The calls that a run was granted, and the tokens that it used.

Both are bounded: an agent may make a million calls and name a million models, and the
report of its run must still be one that a person can open.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from agentctl_protocol.errors import PeerProtocolError
from agentctl_protocol.messages import CallFinished, CallKind, Usage, UsageQuality
from agentctl_protocol.records import VerdictRecord
from agentctl_protocol.report import Call, UsageTotal
from agentctl_protocol.values import NIL, open_value

MAX_CALLS: Final = 1000
MAX_OPEN_CALLS: Final = 10_000
MAX_VALUE_BYTES: Final = 4 << 20
MAX_ERROR: Final = 4096
MAX_MODELS: Final = 256
MAX_MODEL_NAME: Final = 256
MAX_CALLS_WITH_USAGE: Final = 4096

_OMITTED: Final = "(omitted; it is in the log)"
_OTHER_MODELS: Final = "(other)"
_CERTAINTY: Final[Mapping[UsageQuality, int]] = {
    "reported": 0,
    "partial": 1,
    "estimated": 2,
    "unknown": 3,
}

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
        self._hold(call)
        if len(self._open) > MAX_OPEN_CALLS:
            self._end(self._open.pop(next(iter(self._open))))

    def finish(self, message: CallFinished, time_ns: int) -> tuple[CallKind, str] | None:
        """The agent says that a call is over: its kind and name, or None if none is open."""
        call = self._open.pop(message.call, None)
        if call is None:
            return None
        if self._with_values.pop(call.number, None) is not None:
            self._value_bytes -= call.value_bytes
        call.outcome, call.finished_ns = message.outcome, time_ns
        call.result, call.error = message.result, message.error[:MAX_ERROR]
        self._hold(call)
        self._end(call)
        return call.kind, call.name

    def calls(self, notes: list[str], *, interrupted: bool) -> tuple[Call, ...]:
        """What the report shows; a value that cannot be shown adds a sentence to *notes*.

        *interrupted*: the run is over, so what is open stays unfinished for ever.
        """
        every = sorted((*self._over, *self._open.values()), key=lambda call: call.number)
        return tuple(_shown(call, notes, interrupted=interrupted) for call in every)

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


def _shown(call: _Granted, notes: list[str], *, interrupted: bool) -> Call:
    args = open_or_note(call.args, f"arguments of call {call.id}", notes)
    started_at = datetime.fromtimestamp(call.time_ns / 1e9, UTC)
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
        open_or_note(call.result, f"result of call {call.id}", notes),
        call.error,
        started_at,
        max(0.0, (call.finished_ns - call.time_ns) / 1e9),
    )


def open_or_note(raw: msgspec.Raw | None, what: str, notes: list[str]) -> Any:
    """The value of *raw*, from a child; if there is none in it, None and a sentence in *notes*."""
    if raw is None:
        return _OMITTED
    try:
        return open_value(raw, what)
    except PeerProtocolError as error:
        notes.append(str(error))
        return None


class UsageTotals:
    """Tokens by model: the last word on each call, and the sum of what belongs to none."""

    def __init__(self) -> None:
        self._settled: dict[str, UsageTotal] = {}
        self._by_call: dict[str, Usage] = {}
        #: Prompt and completion of all models, as far as anybody said.
        self.tokens = 0

    def __repr__(self) -> str:
        return f"<UsageTotals {len(self._settled)} models, {len(self._by_call)} calls>"

    def add(self, usage: Usage) -> None:
        """The agent says what it used."""
        self.tokens += usage.prompt_tokens + usage.completion_tokens
        before = self._by_call.get(usage.call) if usage.call else None
        if before is not None:
            self.tokens -= before.prompt_tokens + before.completion_tokens
        if not usage.call:
            _add(self._settled, usage)
            return
        self._by_call[usage.call] = usage
        if len(self._by_call) > MAX_CALLS_WITH_USAGE:
            _add(self._settled, self._by_call.pop(next(iter(self._by_call))))

    def cut(self, call: str, name: str) -> None:
        """The model call *call* was cut short: what is known of it is not all, if anything is."""
        self.add(_cut(self._by_call.get(call), call, name))

    def totals(self, open_model_calls: Iterable[tuple[str, str]] = ()) -> dict[str, UsageTotal]:
        """By model, with the quality of the least certain part; open calls count as cut short."""
        totals = dict(self._settled)
        by_call = dict(self._by_call)
        for call, name in open_model_calls:
            by_call[call] = _cut(by_call.get(call), call, name)
        for usage in by_call.values():
            _add(totals, usage)
        return totals


def _cut(known: Usage | None, call: str, name: str) -> Usage:
    if known is None:
        return Usage(model=name, call=call, quality="unknown")
    return msgspec.structs.replace(known, quality=_worse(known.quality, "partial"))


def _add(totals: dict[str, UsageTotal], usage: Usage) -> None:
    model = usage.model[:MAX_MODEL_NAME]
    if model not in totals and len(totals) >= MAX_MODELS:
        model = _OTHER_MODELS
    before = totals.get(model, UsageTotal(0, 0, "reported"))
    totals[model] = UsageTotal(
        before.prompt_tokens + usage.prompt_tokens,
        before.completion_tokens + usage.completion_tokens,
        _worse(before.quality, usage.quality),
    )


def _worse(one: UsageQuality, other: UsageQuality) -> UsageQuality:
    return max(one, other, key=_CERTAINTY.__getitem__)
