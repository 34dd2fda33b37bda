"""The eleven conditions: AutoGen's names and constructors, judged by the supervisor.

What is meant to be different from AutoGen's (0.7.5), each with a test:

- Conditions hold no state.  One can be used again, in many runs at once and several
  times in one tree; there is no ``reset`` and no `TerminatedException`.
- They are judged on every event and not when an agent's turn is over, so that they end
  an agent that ignores them.
- The task's text is not judged: an agent that is told to say TERMINATE has not said it.
  Who wants it judged feeds it to the judge as a `Message`.
- Time is counted from the run's start, by the supervisor's clock, and a timer ends the
  run: no message has to come.
- All conditions that fired are told, each with its own sentence and time.
- A count, a limit of tokens or a time of 0, and an empty text are refused when the
  condition is made: AutoGen's are met before the run begins.
- `TextMentionTermination` reads what agents say: messages, and streamed pieces as one
  text.  It does not read what a tool was given or gave back.
- `SourceMatchTermination` waits for a whole message, and calls have no source.
- `FunctionCallTermination` can ask for an outcome (``result``).
- A function that raises ends the run.
"""

import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Literal

from agentctl_supervisor.conditions.condition import (
    MAX_NAME,
    MAX_TEXT,
    Judged,
    TerminationCondition,
    check_count,
    check_one_of,
    check_text,
    checked_names,
    settle,
)
from agentctl_supervisor.conditions.condition_error import ConditionError

CALL_RESULTS: Final = ("ok", "error", "cancelled")

_TOO_LONG_S: Final = 1e9
_SHORTEST_S: Final = 0.001
_DIGITS: Final = 6


class StopMessageTermination(TerminationCondition, frozen=True, tag="stop_message"):
    """An agent sent a message of kind ``stop``."""


class MaxMessageTermination(TerminationCondition, frozen=True, tag="max_messages"):
    """There were so many whole messages; *include_agent_event*: or calls of tools, and ends
    of such calls.  Streamed pieces are no messages.
    """

    max_messages: int
    include_agent_event: bool = False

    def __post_init__(self) -> None:
        check_count(self.max_messages, "max_messages")
        check_one_of(self.include_agent_event, (True, False), "include_agent_event")


class TextMentionTermination(TerminationCondition, frozen=True, tag="text"):
    """*text* occurs in what one of *sources* (default: any agent) says.

    That is in one message, sent whole or in pieces.  A message in pieces ends with the
    next whole one of the same source, and when a model call begins while none is open.
    What is written to stdout does not count.
    """

    text: str
    sources: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_text(self.text, "the text", MAX_TEXT)
        if self.sources is not None:
            settle(self, "sources", checked_names(self.sources, "sources"))


class FunctionalTermination(TerminationCondition, frozen=True, tag="functional"):
    """*func*, called with what is new since its last call, returned True.

    Only in Python, and only in the program that embeds the supervisor.  It may be a coroutine
    function.  It is not called by the judge but by the judge's owner; see `functions`.
    """

    func: Callable[[Sequence[Judged]], bool | Awaitable[bool]]

    def __post_init__(self) -> None:
        if not callable(self.func):
            raise ConditionError("the function of a FunctionalTermination cannot be called")


class TokenUsageTermination(TerminationCondition, frozen=True, tag="tokens"):
    """So many tokens were used, by all models together, of one of the three kinds."""

    max_total_token: int | None = None
    max_prompt_token: int | None = None
    max_completion_token: int | None = None

    def __post_init__(self) -> None:
        limits = {
            "total": self.max_total_token,
            "prompt": self.max_prompt_token,
            "completion": self.max_completion_token,
        }
        if all(limit is None for limit in limits.values()):
            raise ConditionError(
                "tokens without a limit", "give total, prompt or completion, or several"
            )
        for kind, limit in limits.items():
            if limit is not None:
                check_count(limit, f"the limit of {kind} tokens")


class HandoffTermination(TerminationCondition, frozen=True, tag="handoff"):
    """An agent handed over to *target*, by a message of kind ``handoff``."""

    target: str

    def __post_init__(self) -> None:
        check_text(self.target, "the target of a handoff", MAX_NAME)


class TimeoutTermination(TerminationCondition, frozen=True, tag="time"):
    """So many seconds (to the microsecond) have passed since the run's start."""

    timeout_seconds: float

    def __post_init__(self) -> None:
        seconds = self.timeout_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise ConditionError("the time is no number of seconds", "60, or 0.5")
        # An int of a thousand digits has no float.
        if not -_TOO_LONG_S < seconds < _TOO_LONG_S or math.isnan(seconds):
            raise ConditionError("the time is longer than 30 years, or no number")
        if seconds < _SHORTEST_S:
            raise ConditionError("the time is shorter than a millisecond")
        settle(self, "timeout_seconds", round(float(seconds), _DIGITS))


class ExternalTermination(TerminationCondition, frozen=True, tag="external"):
    """Somebody said so, from outside of the run: ``agentctl signal RUN``."""


class SourceMatchTermination(TerminationCondition, frozen=True, tag="source"):
    """One of *sources* sent a whole message of any kind."""

    sources: Sequence[str]

    def __post_init__(self) -> None:
        settle(self, "sources", checked_names(self.sources, "sources"))


class TextMessageTermination(TerminationCondition, frozen=True, tag="text_message"):
    """An agent, or only *source*, sent a message of kind ``text``."""

    source: str | None = None

    def __post_init__(self) -> None:
        if self.source is not None:
            check_text(self.source, "the source", MAX_NAME, shortest=0)


class FunctionCallTermination(TerminationCondition, frozen=True, tag="tool"):
    """A call of the tool *function_name* is over, or only one that ended in *result*.

    That is what the agent reports: ``ok``, ``error`` or ``cancelled``.  Only a call that
    the gate granted counts.
    """

    function_name: str
    result: Literal["ok", "error", "cancelled"] | None = None

    def __post_init__(self) -> None:
        check_text(self.function_name, "the name of a tool", MAX_NAME)
        if self.result is not None:
            check_one_of(self.result, CALL_RESULTS, "the result of a call")
