"""The tokens that a run used: reported, and of calls that were cut short, estimated.

Bounded: an agent may name a million models, and say numbers whose sum has no place on the
wire.  Such a sum stays at `MAX_TOKENS`, and its quality is ``unknown``.
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
"""The greatest count that the protocol can say."""

_OTHER_MODELS: Final = "(other)"
_CERTAINTY: Final[Mapping[UsageQuality, int]] = {
    "reported": 0,
    "partial": 1,
    "estimated": 2,
    "unknown": 3,
}


class UsageTotals:
    """Tokens by model: the last word on each call, and the sum of what belongs to none."""

    def __init__(self) -> None:
        self._settled: dict[str, UsageTotal] = {}
        self._by_call: dict[str, Usage] = {}
        #: Calls of which the agent has said nothing: what it says without a call is of them.
        self._guessed: dict[str, None] = {}
        self._tokens = 0

    def __repr__(self) -> str:
        return f"<UsageTotals {len(self._settled)} models, {len(self._by_call)} calls>"

    @property
    def tokens(self) -> int:
        """Prompt and completion of all models, as far as anybody said."""
        return min(self._tokens, MAX_TOKENS)

    def knows(self, call: str) -> bool:
        """Whether the agent has said what *call* used, or somebody has counted it."""
        return call in self._by_call

    def add(self, usage: Usage, only_call: str = "") -> None:
        """The agent says what it used.

        *only_call*: the one model call that it has open.  What it says without naming a call is
        of that one, or of the last whose counts are a guess: it must not be counted beside it.
        """
        if len(usage.call) > MAX_CALL_ID or len(usage.model) > MAX_MODEL_NAME:
            # No call has such an id: it is kept as far as one may be long.
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
        """*usage*, which names no call, as a running total of *call*; as it is if it cannot be."""
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
        """The model call *call* was cut short: what is known of it is not all, if anything is."""
        self.add(_cut(self._by_call.get(call), call, name))

    def estimate(self, body: Estimate) -> None:
        """Somebody counted what a call that was cut short used; what the agent said goes first."""
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
    totals[model] = UsageTotal(*_sum(before, usage))


def _sum(one: Usage | UsageTotal, other: Usage) -> tuple[int, int, UsageQuality]:
    """Prompt and completion tokens, and their quality: unknown where there are too many to say."""
    prompt = one.prompt_tokens + other.prompt_tokens
    completion = one.completion_tokens + other.completion_tokens
    if max(prompt, completion) > MAX_TOKENS:
        return min(prompt, MAX_TOKENS), min(completion, MAX_TOKENS), "unknown"
    return prompt, completion, _worse(one.quality, other.quality)


def _worse(one: UsageQuality, other: UsageQuality) -> UsageQuality:
    return max(one, other, key=_CERTAINTY.__getitem__)
