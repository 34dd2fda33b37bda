"""The gate: it grants or refuses each model and tool call.

Pure.  The supervisor appends the verdict to the log *before* it sends it, and that record is the
start of the call.  After the stop record every verdict is ``refused``.  Promise P3 rests on
this, not on the agent's cooperation.
"""

from typing import Final

import msgspec

from agentctl_protocol.messages import Ask
from agentctl_protocol.records import VerdictRecord, Waiting
from agentctl_protocol.report import Actor
from agentctl_supervisor.gate.call_rules import Approval, CallRules, Refusal
from agentctl_supervisor.gate.used_ids import UsedIds

MAX_CALLS: Final = 1 << 20
"""Most calls of one run; more are refused, because all their ids are kept in memory (`UsedIds`)."""
MAX_WAITING: Final = 256
"""Asks that may wait for a person at once; more are refused."""
MAX_WAITING_BYTES: Final = 4 << 20
"""Most bytes of the arguments of all waiting asks; an ask that would exceed it is refused."""


class Gate:
    """The gate of one run: it judges the asks.  It is open until `close`, then closed for good.

    ``exceeded``: the refusal for the first exceeded budget of the whole run, or None.
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
        """True if every further ask is refused."""
        return bool(self._closed_because)

    @property
    def waiting(self) -> tuple[Waiting, ...]:
        """The calls that wait for a person, the oldest first; it has the lowest number."""
        return tuple(waiting for _, waiting in self._waiting.values())

    def close(self, because: str) -> list[VerdictRecord]:
        """Refuse every ask from now on; a later reason does not replace the first one.

        Returns the verdicts on the calls that waited: a stop refuses them.
        """
        self._closed_because = self._closed_because or because
        asks = [ask for ask, _ in self._waiting.values()]
        self._waiting.clear()
        return [_verdict(ask, self._closed_because) for ask in asks]

    def judge(self, ask: Ask, tokens: int = 0) -> VerdictRecord | Waiting:
        """Return the verdict on *ask*, or a `Waiting` if a person has to give the verdict.

        *tokens*: the tokens that the run has used so far, as far as known.
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
                # A copy: the original is a view that keeps the whole message in memory.
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
        """Give a person's verdict on a waiting call: granted if *why* is None.

        Returns None if no such call waits.
        """
        if call not in self._waiting:
            return None
        ask, _ = self._waiting.pop(call)
        if why is not None:
            self._rules.uncount(ask)
        return _verdict(ask, why or "", actor)

    def used(self, tokens: int) -> Refusal | None:
        """Take the number of tokens used so far; return a refusal if the budget is used up."""
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
