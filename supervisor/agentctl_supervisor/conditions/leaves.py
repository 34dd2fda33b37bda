"""The eleven conditions: AutoGen's names and constructors, judged by the supervisor.

These differences from AutoGen (0.7.5) are intended, and each has a test:

- Conditions hold no state.  A condition can be used again, in many runs at once and several
  times in one tree.  There is no ``reset`` and no `TerminatedException`.
- They are judged on every event and not at the end of an agent's turn, so that they also end
  an agent that ignores them.
- The task's text is not judged: an agent that is told to say TERMINATE has not said it.
  To have it judged, feed it to the judge as a `Message`.
- Time is counted from the run's start, by the supervisor's clock.  A timer ends the run; no
  message has to arrive.
- All conditions that fired are reported, each with its own sentence and time.
- A count, a token limit or a time of 0, and an empty text are refused when the condition is
  constructed.  In AutoGen, such conditions are met before the run begins.
- `TextMentionTermination` reads the messages of agents, and streamed pieces as one text.  It
  does not read the arguments and results of tools.
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
    """The condition that an agent sent a message of kind ``stop``."""


class MaxMessageTermination(TerminationCondition, frozen=True, tag="max_messages"):
    """The condition that *max_messages* whole messages were sent.

    With *include_agent_event*, the start and the end of each tool call count too.  Streamed
    pieces are not messages.
    """

    max_messages: int
    include_agent_event: bool = False

    def __post_init__(self) -> None:
        check_count(self.max_messages, "max_messages")
        check_one_of(self.include_agent_event, (True, False), "include_agent_event")


class TextMentionTermination(TerminationCondition, frozen=True, tag="text"):
    """The condition that *text* occurs in a message of one of *sources* (default: any agent).

    The message may be sent whole or in pieces.  A message in pieces ends at the next whole
    message of the same source, or when a model call begins while no other is open.  Output on
    stdout does not count.
    """

    text: str
    sources: Sequence[str] | None = None

    def __post_init__(self) -> None:
        check_text(self.text, "the text", MAX_TEXT)
        if self.sources is not None:
            settle(self, "sources", checked_names(self.sources, "sources"))


class FunctionalTermination(TerminationCondition, frozen=True, tag="functional"):
    """The condition that *func* returned True for the events since its last call.

    It exists only in Python, in the program that embeds the supervisor.  *func* may be a
    coroutine function.  The owner of the judge calls it, not the judge; see `functions`.
    """

    func: Callable[[Sequence[Judged]], bool | Awaitable[bool]]

    def __post_init__(self) -> None:
        if not callable(self.func):
            raise ConditionError("the function of a FunctionalTermination cannot be called")


class TokenUsageTermination(TerminationCondition, frozen=True, tag="tokens"):
    """The condition that all models together reached one of the three token limits."""

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
    """The condition that an agent handed over to *target*, by a message of kind ``handoff``."""

    target: str

    def __post_init__(self) -> None:
        check_text(self.target, "the target of a handoff", MAX_NAME)


class TimeoutTermination(TerminationCondition, frozen=True, tag="time"):
    """The condition that *timeout_seconds* (to the microsecond) passed since the run's start."""

    timeout_seconds: float

    def __post_init__(self) -> None:
        seconds = self.timeout_seconds
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise ConditionError("the time is no number of seconds", "60, or 0.5")
        # Compare first: an int of a thousand digits cannot be converted to a float.
        if not -_TOO_LONG_S < seconds < _TOO_LONG_S or math.isnan(seconds):
            raise ConditionError("the time is longer than 30 years, or no number")
        if seconds < _SHORTEST_S:
            raise ConditionError("the time is shorter than a millisecond")
        settle(self, "timeout_seconds", round(float(seconds), _DIGITS))


class ExternalTermination(TerminationCondition, frozen=True, tag="external"):
    """The condition that somebody ran ``agentctl signal RUN``, from outside the run."""


class SourceMatchTermination(TerminationCondition, frozen=True, tag="source"):
    """The condition that one of *sources* sent a whole message of any kind."""

    sources: Sequence[str]

    def __post_init__(self) -> None:
        settle(self, "sources", checked_names(self.sources, "sources"))


class TextMessageTermination(TerminationCondition, frozen=True, tag="text_message"):
    """The condition that an agent, or only *source*, sent a message of kind ``text``."""

    source: str | None = None

    def __post_init__(self) -> None:
        if self.source is not None:
            check_text(self.source, "the source", MAX_NAME, shortest=0)


class FunctionCallTermination(TerminationCondition, frozen=True, tag="tool"):
    """The condition that a call of the tool *function_name* ended, or ended with *result*.

    The agent reports the result: ``ok``, ``error`` or ``cancelled``.  Only a call that the gate
    granted counts.
    """

    function_name: str
    result: Literal["ok", "error", "cancelled"] | None = None

    def __post_init__(self) -> None:
        check_text(self.function_name, "the name of a tool", MAX_NAME)
        if self.result is not None:
            check_one_of(self.result, CALL_RESULTS, "the result of a call")
