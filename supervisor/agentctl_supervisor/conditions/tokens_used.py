"""Adds up tokens: the last report on each call, and every report that names no call."""

from collections.abc import Iterable
from typing import Final

from agentctl_protocol.messages import Usage
from agentctl_supervisor.conditions.leaf_match import Hits
from agentctl_supervisor.conditions.leaves import TokenUsageTermination
from agentctl_supervisor.conditions.threshold import Threshold

MAX_CALLS: Final = 4096
"""Calls whose running totals are remembered.  One more makes the oldest total final."""
_LONGEST_CALL: Final = 128


class TokensUsed:
    """The watcher for all `TokenUsageTermination` of a tree."""

    def __init__(self, leaves: Iterable[tuple[int, TokenUsageTermination]], hits: Hits) -> None:
        every = list(leaves)
        self._hits = hits
        self._prompt = self._completion = 0
        #: Prompt and completion tokens by call id, which is cut to its longest valid length.
        self._of_call: dict[str, tuple[int, int]] = {}
        self._total_limits = Threshold(
            (number, leaf.max_total_token)
            for number, leaf in every
            if leaf.max_total_token is not None
        )
        self._prompt_limits = Threshold(
            (number, leaf.max_prompt_token)
            for number, leaf in every
            if leaf.max_prompt_token is not None
        )
        self._completion_limits = Threshold(
            (number, leaf.max_completion_token)
            for number, leaf in every
            if leaf.max_completion_token is not None
        )

    def __repr__(self) -> str:
        return f"<TokensUsed {self._prompt} + {self._completion}>"

    def usage(self, event: Usage) -> None:
        """Add the tokens that the agent reports."""
        prompt, completion = event.prompt_tokens, event.completion_tokens
        if event.call:
            call, said = event.call[:_LONGEST_CALL], (prompt, completion)
            before = self._of_call.pop(call, None)
            if before is not None:
                prompt -= before[0]
                completion -= before[1]
            elif len(self._of_call) >= MAX_CALLS:
                del self._of_call[next(iter(self._of_call))]
            self._of_call[call] = said
        self._prompt = prompt = self._prompt + prompt
        self._completion = completion = self._completion + completion
        if (
            prompt + completion >= self._total_limits.next
            or prompt >= self._prompt_limits.next
            or completion >= self._completion_limits.next
        ):
            self._reached()

    def _reached(self) -> None:
        total = self._prompt + self._completion
        told = (
            f"Token usage limit reached, total token count: {total},"
            f" prompt token count: {self._prompt}, completion token count: {self._completion}."
        )
        for limits, count in (
            (self._total_limits, total),
            (self._prompt_limits, self._prompt),
            (self._completion_limits, self._completion),
        ):
            self._hits.extend((number, told) for number, _ in limits.reached(count))
