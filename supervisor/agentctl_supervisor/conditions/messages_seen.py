"""Watches whole messages: their kind, their source and their number."""

from collections.abc import Iterable
from typing import Final

from agentctl_protocol.messages import Message
from agentctl_supervisor.conditions.composition import Leaf
from agentctl_supervisor.conditions.leaf_match import Hits, plain
from agentctl_supervisor.conditions.leaves import (
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    StopMessageTermination,
    TextMessageTermination,
)
from agentctl_supervisor.conditions.threshold import Threshold

LEAVES: Final = (
    HandoffTermination,
    MaxMessageTermination,
    SourceMatchTermination,
    StopMessageTermination,
    TextMessageTermination,
)

_Numbers = list[int]
_NONE: Final[_Numbers] = []


class MessagesSeen:
    """The watcher for all conditions on messages of a tree.

    Its count of steps also includes the starts and ends of tool calls; `tool_calls.ToolCalls`
    reports those to `step`.
    """

    def __init__(self, leaves: Iterable[tuple[int, Leaf]], hits: Hits) -> None:
        self._hits = hits
        self._count = self._steps = 0
        self._stop: _Numbers = []
        self._text: _Numbers = []
        self._text_from: dict[str, _Numbers] = {}
        self._handoff_to: dict[str, _Numbers] = {}
        self._from: dict[str, _Numbers] = {}
        counts: list[tuple[int, int]] = []
        steps: list[tuple[int, int]] = []
        for number, leaf in leaves:
            match leaf:
                case StopMessageTermination():
                    self._stop.append(number)
                case TextMessageTermination(source=None):
                    self._text.append(number)
                case TextMessageTermination(source=str(source)):
                    self._text_from.setdefault(source, []).append(number)
                case HandoffTermination(target=target):
                    self._handoff_to.setdefault(target, []).append(number)
                case SourceMatchTermination(sources=sources):
                    for source in sources:
                        self._from.setdefault(source, []).append(number)
                case MaxMessageTermination(include_agent_event=True):
                    steps.append((number, leaf.max_messages))
                case MaxMessageTermination():
                    counts.append((number, leaf.max_messages))
        self._counts = Threshold(counts)
        self._all_steps = Threshold(steps)
        #: True if tool calls have to be counted.
        self.wants_steps: Final = bool(steps)

    def __repr__(self) -> str:
        return f"<MessagesSeen {self._count}>"

    def message(self, event: Message) -> None:
        """Check the conditions against a whole message."""
        source = event.source
        self._count = count = self._count + 1
        if count >= self._counts.next:
            self._reached(self._counts, count)
        if self.wants_steps:
            self.step()
        kind = event.kind
        if kind == "text":
            if self._text or source in self._text_from:
                self._text_message(source)
        elif kind == "stop":
            self._hit(self._stop, "Stop message received")
        elif event.target in self._handoff_to:
            told = f"Handoff to {plain(event.target)} from {plain(source)} detected."
            self._hit(self._handoff_to.pop(event.target), told)
        if source in self._from:
            self._hit(self._from.pop(source), f"'{plain(source)}' answered")

    def step(self) -> None:
        """Count a step: a message, or the start or the end of a tool call."""
        self._steps += 1
        if self._steps >= self._all_steps.next:
            self._reached(self._all_steps, self._steps)

    def _text_message(self, source: str) -> None:
        told = f"Text message received from '{plain(source)}'"
        self._hit(self._text, told)
        self._hit(self._text_from.pop(source, _NONE), told)

    def _reached(self, threshold: Threshold, count: int) -> None:
        for number, limit in threshold.reached(count):
            told = f"Maximum number of messages {limit} reached, current message count: {count}"
            self._hits.append((number, told))

    def _hit(self, numbers: _Numbers, sentence: str) -> None:
        """Report that the leaves *numbers* are met, and stop watching for them."""
        self._hits.extend((number, sentence) for number in numbers)
        numbers.clear()
