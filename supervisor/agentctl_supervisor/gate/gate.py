"""The gate: permission for each model and tool call.

Pure.  The supervisor appends the verdict to the log *before* it sends it, and
that record is the start of the call.  After the stop record every verdict is
``refused``: that, and not the agent's goodwill, is promise P3.
"""

from typing import Final

import msgspec

from agentctl_protocol.messages import Ask
from agentctl_protocol.records import VerdictRecord, Waiting
from agentctl_protocol.report import Actor
from agentctl_supervisor.gate.call_rules import Approval, CallRules, Refusal
from agentctl_supervisor.gate.used_ids import UsedIds

MAX_CALLS: Final = 1 << 20
"""Calls of one run; more are refused, because the ids of all are remembered (`UsedIds`)."""
MAX_WAITING: Final = 256
"""Asks that may wait for a person at once; more are refused."""
MAX_WAITING_BYTES: Final = 4 << 20
"""Of the arguments of all that wait; an ask that would make them more is refused."""


class Gate:
    """Judges the asks of one run.  Open until `close`, then closed for good.

    ``exceeded``: the budget of the whole run that an ask ran into, if one did.
    """

    def __init__(self, rules: CallRules | None = None) -> None:
        self.exceeded: Refusal | None = None
        self._rules = rules or CallRules()
        self._closed_because = ""
        self._used_calls = UsedIds()
        self._waiting: dict[str, tuple[Ask, Waiting]] = {}
        self._numbered = 0

    def __repr__(self) -> str:
        state = f"closed: {self._closed_because}" if self._closed_because else "open"
        waiting = f", {len(self._waiting)} waiting" if self._waiting else ""
        return f"<Gate {state}, {len(self._used_calls)} calls{waiting}>"

    @property
    def closed(self) -> bool:
        """Whether every further ask is refused."""
        return bool(self._closed_because)

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """The calls that wait for a person, the oldest first, which has the lowest number."""
        return tuple(waiting for _, waiting in self._waiting.values())

    def close(self, because: str) -> list[VerdictRecord]:
        """Refuse every ask from now on; the first reason stays.

        Returns the verdicts on the calls that waited: a stop is an answer to them.
        """
        self._closed_because = self._closed_because or because
        asks = [ask for ask, _ in self._waiting.values()]
        self._waiting.clear()
        return [_verdict(ask, self._closed_because) for ask in asks]

    def judge(self, ask: Ask, tokens: int = 0) -> VerdictRecord | Waiting:
        """The verdict on *ask*, or that a person has to give it.

        *tokens*: how many the run has used so far, as far as is known.
        """
        why = self._closed_because
        if not why and ask.call in self._used_calls:
            why = "this call id was used before"
        if not why and len(self._used_calls) >= MAX_CALLS:
            why = f"more than {MAX_CALLS} calls in one run"
        if why:
            return _verdict(ask, why)
        match self._rules.judge(ask, tokens, len(self._waiting)):
            case Refusal() as refusal:
                if refusal.limit is not None:
                    self.exceeded = self.exceeded or refusal
                return _verdict(ask, refusal.why)
            case Approval(pattern=pattern):
                if len(self._waiting) >= MAX_WAITING:
                    return _verdict(ask, f"{MAX_WAITING} calls wait for approval already")
                # A copy: the original is a view that keeps all of its message in memory.
                ask = msgspec.structs.replace(ask, args=msgspec.Raw(bytes(ask.args)))
                waiting_bytes = sum(_bytes_of(one) for one, _ in self._waiting.values())
                if waiting_bytes + _bytes_of(ask) > MAX_WAITING_BYTES:
                    return _verdict(ask, "the calls that wait for approval are too long together")
                self._take(ask)
                self._numbered += 1
                waiting = Waiting(ask.call, ask.kind, ask.name, pattern, self._numbered)
                self._waiting[ask.call] = ask, waiting
                return waiting
        self._take(ask)
        return _verdict(ask)

    def decide(self, call: str, actor: Actor, *, why: str | None) -> VerdictRecord | None:
        """A person's verdict on a call that waits: granted if *why* is None; None: none waits."""
        if call not in self._waiting:
            return None
        ask, _ = self._waiting.pop(call)
        if why is not None:
            self._rules.uncount(ask)
        return _verdict(ask, why or "", actor)

    def used(self, tokens: int) -> Refusal | None:
        """The run has used so many tokens by now; what it ran into, if it did."""
        exceeded = self._rules.tokens_exceeded(tokens)
        self.exceeded = self.exceeded or exceeded
        return exceeded

    def _take(self, ask: Ask) -> None:
        self._used_calls.add(ask.call)
        self._rules.count(ask)


def _bytes_of(ask: Ask) -> int:
    return len(memoryview(ask.args))


def _verdict(ask: Ask, why: str = "", actor: Actor | None = None) -> VerdictRecord:
    return VerdictRecord(
        call=ask.call,
        kind=ask.kind,
        name=ask.name,
        verdict="refused" if why else "granted",
        why=why,
        args=msgspec.Raw(bytes(ask.args)),
        actor=actor,
    )
