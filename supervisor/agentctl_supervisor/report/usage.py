"""Adds up the tokens that a run used: reported, or estimated for calls that were cut short.

Bounded: an agent may name a million models, and report numbers whose sum does not fit into a
message.  Such a sum stays at `MAX_TOKENS`, and its quality is ``unknown``.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from agentctl_protocol.messages import Usage, UsageQuality
from agentctl_protocol.records import Estimate
from agentctl_protocol.report import UsageTotal

MAX_MODELS: Final = 256
MAX_MODEL_NAME: Final = 256
MAX_CALLS_WITH_USAGE: Final = 4096
MAX_CALL_ID: Final = 128
MAX_TOKENS: Final = (1 << 63) - 1
"""The greatest count that the protocol can represent."""

_OTHER_MODELS: Final = "(other)"
_CERTAINTY: Final[Mapping[UsageQuality, int]] = {
    "reported": 0,
    "partial": 1,
    "estimated": 2,
    "unknown": 3,
}


class UsageTotals:
    """The tokens by model: the last report on each call, and the sum of reports without a call."""

    def __init__(self) -> None:
        self._settled: dict[str, UsageTotal] = {}
        self._by_call: dict[str, Usage] = {}
        #: Calls with a guess instead of a report: a report without a call belongs to the last one.
        self._guessed: dict[str, None] = {}
        self._tokens = 0

    def __repr__(self) -> str:
        return f"<UsageTotals {len(self._settled)} models, {len(self._by_call)} calls>"

    @property
    def tokens(self) -> int:
        """The prompt and completion tokens of all models, as far as reported or estimated."""
        return min(self._tokens, MAX_TOKENS)

    def knows(self, call: str) -> bool:
        """Return True if the usage of *call* was reported or estimated."""
        return call in self._by_call

    def add(self, usage: Usage, only_call: str = "") -> None:
        """Add a report of the agent.

        *only_call*: the id of the open model call, if there is exactly one.  A report that names
        no call belongs to that call, or else to the last call whose counts are a guess.  It
        replaces the guess: both together would count the tokens twice.
        """
        if len(usage.call) > MAX_CALL_ID or len(usage.model) > MAX_MODEL_NAME:
            # No call has an id that is so long, so it is cut to the longest valid length.
            usage = msgspec.structs.replace(
                usage, call=usage.call[:MAX_CALL_ID], model=usage.model[:MAX_MODEL_NAME]
            )
        if not usage.call:
            usage = self._named(usage, only_call or next(reversed(self._guessed), ""))
        if usage.call:
            self._guessed.pop(usage.call, None)
            if usage.quality in ("estimated", "unknown"):
                self._guessed[usage.call] = None
        self._tokens += usage.prompt_tokens + usage.completion_tokens
        before = self._by_call.get(usage.call) if usage.call else None
        if before is not None:
            self._tokens -= before.prompt_tokens + before.completion_tokens
        if not usage.call:
            _add(self._settled, usage)
            return
        self._by_call[usage.call] = usage
        if len(self._by_call) > MAX_CALLS_WITH_USAGE:
            oldest = next(iter(self._by_call))
            self._guessed.pop(oldest, None)
            _add(self._settled, self._by_call.pop(oldest))

    def _named(self, usage: Usage, call: str) -> Usage:
        """Return *usage*, which names no call, as a running total of *call* if it can be one."""
        known = self._by_call.get(call)
        if known is None or call in self._guessed:
            return msgspec.structs.replace(usage, call=call)
        if known.model != usage.model:
            return usage
        prompt, completion, quality = _sum(known, usage)
        return msgspec.structs.replace(
            usage,
            call=call,
            prompt_tokens=prompt,
            completion_tokens=completion,
            quality=quality,
        )

    def cut(self, call: str, name: str) -> None:
        """Note that the model call *call* was cut short: its counts are incomplete or unknown."""
        self.add(_cut(self._by_call.get(call), call, name))

    def estimate(self, body: Estimate) -> None:
        """Add an estimate for a call that was cut short; the agent's own counts take precedence."""
        known = self._by_call.get(body.call)
        prompt = (known.prompt_tokens if known else 0) or body.prompt_tokens
        completion = (known.completion_tokens if known else 0) or body.completion_tokens
        said_both = known is not None and known.prompt_tokens and known.completion_tokens
        self.add(
            Usage(
                model=(known.model if known else "") or body.model,
                call=body.call,
                prompt_tokens=prompt,
                completion_tokens=completion,
                quality="partial"
                if said_both
                else "estimated"
                if prompt + completion
                else "unknown",
            )
        )

    def totals(self, open_model_calls: Iterable[tuple[str, str]] = ()) -> dict[str, UsageTotal]:
        """Return the totals by model, each with the quality of its least certain part.

        The calls in *open_model_calls* count as cut short.
        """
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
    totals[model] = UsageTotal(*_sum(before, usage))


def _sum(one: Usage | UsageTotal, other: Usage) -> tuple[int, int, UsageQuality]:
    """Add prompt and completion tokens; the quality is ``unknown`` if a sum is too large."""
    prompt = one.prompt_tokens + other.prompt_tokens
    completion = one.completion_tokens + other.completion_tokens
    if max(prompt, completion) > MAX_TOKENS:
        return min(prompt, MAX_TOKENS), min(completion, MAX_TOKENS), "unknown"
    return prompt, completion, _worse(one.quality, other.quality)


def _worse(one: UsageQuality, other: UsageQuality) -> UsageQuality:
    return max(one, other, key=_CERTAINTY.__getitem__)
