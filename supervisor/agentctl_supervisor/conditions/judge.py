"""What has happened in one run, and whether that is what a condition waits for.

Pure: no clock and no I/O.  Whoever owns a `Judge` feeds it each event when it is written
down, wakes it at its next deadline, and ends the run when something fired.  The tree is
taken apart once: each kind of event has the few watchers that care about it.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from agentctl_protocol.messages import CallFinished, Message, Text, Usage
from agentctl_protocol.records import VerdictRecord
from agentctl_protocol.report import FiredCondition
from agentctl_supervisor.conditions.circuit import Circuit
from agentctl_supervisor.conditions.composition import Condition
from agentctl_supervisor.conditions.condition import Judged, TerminationCondition
from agentctl_supervisor.conditions.functions import Functions, Question
from agentctl_supervisor.conditions.leaf_match import Hits
from agentctl_supervisor.conditions.leaves import (
    ExternalTermination,
    FunctionalTermination,
    FunctionCallTermination,
    TextMentionTermination,
    TimeoutTermination,
    TokenUsageTermination,
)
from agentctl_supervisor.conditions.mentions import Mentions
from agentctl_supervisor.conditions.messages_seen import LEAVES as ON_MESSAGES
from agentctl_supervisor.conditions.messages_seen import MessagesSeen
from agentctl_supervisor.conditions.tokens_used import TokensUsed
from agentctl_supervisor.conditions.tool_calls import ToolCalls

_NOTHING: Final[tuple[FiredCondition, ...]] = ()
_NEVER: Final = float("inf")
_Watch = Callable[[Any], None]
_Kind = TypeVar("_Kind", bound=TerminationCondition)


class Judge:
    """Judges the events of one run by *condition*.

    ``now`` and *started* are seconds of one monotonic clock: the supervisor's.  Each of
    `feed`, `feed_all`, `tick`, `signal`, `answered` and `failed` returns the conditions
    that fired when the whole tree has happened by that, and nothing before and after.
    """

    def __init__(self, condition: Condition, started: float) -> None:
        self.condition: Final = condition
        #: What ended the run; empty as long as it has not.
        self.fired: tuple[FiredCondition, ...] = _NOTHING
        self._started = started
        self._circuit = Circuit(condition)
        self._hits: Hits = []
        times = self._leaves(TimeoutTermination)
        self._times = sorted(
            ((leaf.timeout_seconds, number) for number, leaf in times), reverse=True
        )
        self._due = started + self._times[-1][0] if self._times else _NEVER
        self._functions = Functions(self._leaves(FunctionalTermination), self._hits)
        self._watch: dict[type, _Watch] = {}
        self._watch_messages()
        self._watch_texts()
        if usages := self._leaves(TokenUsageTermination):
            self._care(Usage, TokensUsed(usages, self._hits).usage)
        if self._leaves(FunctionalTermination):
            for kind in Judged.__args__:
                self._care(kind, self._functions.event)

    def __repr__(self) -> str:
        return f"<Judge {self._circuit!r}>"

    def _leaves(self, kind: type[_Kind]) -> list[tuple[int, _Kind]]:
        return [(n, leaf) for n, leaf in enumerate(self._circuit.leaves) if isinstance(leaf, kind)]

    def _watch_messages(self) -> None:
        leaves = [
            (n, leaf)
            for n, leaf in enumerate(self._circuit.leaves)
            if isinstance(leaf, ON_MESSAGES)
        ]
        seen = MessagesSeen(leaves, self._hits)
        if leaves:
            self._care(Message, seen.message)
        if (calls := self._leaves(FunctionCallTermination)) or seen.wants_steps:
            watcher = ToolCalls(calls, self._hits, seen.step if seen.wants_steps else None)
            self._care(VerdictRecord, watcher.verdict)
            self._care(CallFinished, watcher.finished)

    def _watch_texts(self) -> None:
        if texts := self._leaves(TextMentionTermination):
            mentions = Mentions(texts, self._hits)
            self._care(Text, mentions.piece)
            self._care(Message, mentions.message)
            self._care(VerdictRecord, mentions.verdict)
            self._care(CallFinished, mentions.finished)

    def _care(self, kind: type, watch: _Watch) -> None:
        first = self._watch.get(kind)
        if first is None:
            self._watch[kind] = watch
            return

        def both(event: Any) -> None:
            first(event)
            watch(event)

        self._watch[kind] = both

    def feed(self, event: Judged, now: float) -> tuple[FiredCondition, ...]:
        """Something happened."""
        if now >= self._due and (fired := self.tick(now)):
            return fired
        watch = self._watch.get(type(event))
        if watch is None or self.fired:
            return _NOTHING
        watch(event)
        return self._conclude(now) if self._hits else _NOTHING

    def feed_all(self, events: Iterable[Judged], now: float) -> tuple[FiredCondition, ...]:
        """These happened, one after the other; those behind the one that counts are not judged."""
        if now >= self._due and (fired := self.tick(now)):
            return fired
        if self.fired:
            return _NOTHING
        watches, hits = self._watch, self._hits
        for event in events:
            watch = watches.get(type(event))
            if watch is not None:
                watch(event)
                if hits and (fired := self._conclude(now)):
                    return fired
        return _NOTHING

    def tick(self, now: float) -> tuple[FiredCondition, ...]:
        """Time has passed; to be called at `next_deadline` at the latest."""
        while now >= self._due:
            seconds, number = self._times.pop()
            self._hits.append((number, f"Timeout of {seconds:g} seconds reached"))
            self._due = self._started + self._times[-1][0] if self._times else _NEVER
        return self._conclude(now)

    def next_deadline(self) -> float | None:
        """When `tick` has to be called, by the clock that *started* is of; None: never."""
        return None if self.fired or self._due == _NEVER else self._due

    def signal(self, now: float) -> tuple[FiredCondition, ...]:
        """Somebody outside asked for it."""
        for number, _ in self._leaves(ExternalTermination):
            self._hits.append((number, "External termination requested"))
        return self._conclude(now)

    @property
    def waits_for_signal(self) -> bool:
        """Whether a `signal` would mean anything."""
        return not self.fired and bool(self._leaves(ExternalTermination))

    @property
    def asks_functions(self) -> bool:
        """Whether there will ever be `questions`."""
        return bool(self._leaves(FunctionalTermination))

    def questions(self) -> list[Question]:
        """Calls of functions to be made now, after something was fed; see `functions`."""
        return [] if self.fired else self._functions.questions()

    def answered(self, question: Question, now: float, *, met: bool) -> tuple[FiredCondition, ...]:
        """What a function said."""
        self._functions.answered(question, met=met)
        return self._conclude(now)

    def failed(self, question: Question, detail: str, now: float) -> tuple[FiredCondition, ...]:
        """A function raised, or gave no answer in time.

        That ends the run, whatever else it waits for: what was asked for cannot be judged
        any more, and a weaker condition than that was not asked for.
        """
        sentence = self._functions.failed(question, detail)
        if self.fired:
            return _NOTHING
        self.fired = (FiredCondition(str(question.condition), sentence, self._since_start(now)),)
        return self.fired

    def _conclude(self, now: float) -> tuple[FiredCondition, ...]:
        """The hits go into the circuit; what fired, if that closes it."""
        for number, sentence in self._hits:
            self._circuit.fire(number, sentence, self._since_start(now))
        self._hits.clear()
        if self.fired or not self._circuit.closed:
            return _NOTHING
        self.fired = self._circuit.fired()
        return self.fired

    def _since_start(self, now: float) -> float:
        return round(now - self._started, 6)
