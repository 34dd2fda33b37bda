"""Decides, event by event, whether the condition of a run is met.

Pure: no clock and no I/O.  The owner of a `Judge` feeds it each event when the event is
recorded, calls it at its next deadline, and ends the run when something fired.  The tree is
split once: each kind of event goes only to the watchers that need it.
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
    """The judge of one run: it checks the run's events against *condition*.

    ``now`` and *started* are seconds of the supervisor's monotonic clock.  `feed`, `feed_all`,
    `tick`, `signal`, `answered` and `failed` return the conditions that fired, once: in the call
    that fulfils the whole tree.  Before and after that call, they return nothing.
    """

    def __init__(self, condition: Condition, started: float) -> None:
        self.condition: Final = condition
        #: The conditions that ended the run; empty until then.
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
        """Judge one event."""
        if now >= self._due and (fired := self.tick(now)):
            return fired
        watch = self._watch.get(type(event))
        if watch is None or self.fired:
            return _NOTHING
        watch(event)
        return self._conclude(now) if self._hits else _NOTHING

    def feed_all(self, events: Iterable[Judged], now: float) -> tuple[FiredCondition, ...]:
        """Judge *events* in order; those after the event that ends the run are not judged."""
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
        """Judge the time that has passed; call this at `next_deadline` at the latest."""
        while now >= self._due:
            seconds, number = self._times.pop()
            self._hits.append((number, f"Timeout of {seconds:g} seconds reached"))
            self._due = self._started + self._times[-1][0] if self._times else _NEVER
        return self._conclude(now)

    def next_deadline(self) -> float | None:
        """Return when `tick` has to be called, by the clock of *started*; None: never."""
        return None if self.fired or self._due == _NEVER else self._due

    def signal(self, now: float) -> tuple[FiredCondition, ...]:
        """Take a request to end the run from outside, such as ``agentctl signal``."""
        for number, _ in self._leaves(ExternalTermination):
            self._hits.append((number, "External termination requested"))
        return self._conclude(now)

    @property
    def waits_for_signal(self) -> bool:
        """True if a `signal` would have an effect."""
        return not self.fired and bool(self._leaves(ExternalTermination))

    @property
    def asks_functions(self) -> bool:
        """True if the tree contains functions, so that there can be `questions`."""
        return bool(self._leaves(FunctionalTermination))

    def questions(self) -> list[Question]:
        """Return the function calls to make now, after events were fed; see `functions`."""
        return [] if self.fired else self._functions.questions()

    def answered(self, question: Question, now: float, *, met: bool) -> tuple[FiredCondition, ...]:
        """Take the answer of a function."""
        self._functions.answered(question, met=met)
        return self._conclude(now)

    def failed(self, question: Question, detail: str, now: float) -> tuple[FiredCondition, ...]:
        """Take the failure of a function: it raised, or gave no answer in time.

        This ends the run, whatever the rest of the tree waits for: the requested condition can
        no longer be judged, and nobody requested a weaker one.
        """
        sentence = self._functions.failed(question, detail)
        if self.fired:
            return _NOTHING
        self.fired = (FiredCondition(str(question.condition), sentence, self._since_start(now)),)
        return self.fired

    def _conclude(self, now: float) -> tuple[FiredCondition, ...]:
        """Pass the hits to the circuit; return what fired if that closes it."""
        for number, sentence in self._hits:
            self._circuit.fire(number, sentence, self._since_start(now))
        self._hits.clear()
        if self.fired or not self._circuit.closed:
            return _NOTHING
        self.fired = self._circuit.fired()
        return self.fired

    def _since_start(self, now: float) -> float:
        return round(now - self._started, 6)
