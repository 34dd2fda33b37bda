"""The functions of a tree: what each has to look at, and what it said.

The judge calls no function: one could block it, and raise whatever it likes.  Its owner
takes each `Question`, has `Question.answer` run on a worker thread with a deadline, and
tells the judge how that went.  There is one question of each function at a time; what
happens meanwhile is in its next.
"""

import sys
from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from agentctl_supervisor.conditions.condition import Judged
from agentctl_supervisor.conditions.leaf_match import Hits, plain
from agentctl_supervisor.conditions.leaves import FunctionalTermination

MAX_EVENTS: Final = 10_000
MAX_EVENT_BYTES: Final = 16 << 20
"""Of events that wait for one function; when there are more, the oldest are missed."""

_LONGEST_DETAIL: Final = 200


class FunctionFailedError(Exception):
    """A function raised something that would end our own event loop; the text says what."""


class Question(msgspec.Struct, frozen=True):
    """One call to make: has *condition* been met by *events*?

    ``missed``: events between the last call and this one that the function never sees,
    because it was too slow.
    """

    condition: FunctionalTermination
    number: int
    events: tuple[Any, ...]
    missed: int = 0

    def answer(self) -> bool:
        """Call the function.  Only True counts, as with AutoGen: not what is merely truthy.

        A coroutine function is run in an event loop of its own.  To be called on a thread
        that nobody waits for without a deadline.

        Raises:
            Exception: what the function raised; `FunctionFailedError` for what is none, such
                as the `TerminatedException` of AutoGen's conditions, or an exit.
        """
        try:
            result: object = self.condition.func(self.events)
            if hasattr(result, "__await__"):
                result = _awaited(result)
        except Exception:
            raise
        except BaseException as error:
            raise FunctionFailedError(f"{type(error).__name__}: {error}") from error
        return result is True


def _awaited(result: Any) -> object:
    import asyncio

    async def wait() -> object:
        return await result

    return asyncio.run(wait())


class _Waiting:
    """Events that one function has not seen, and how many it never will."""

    def __init__(self) -> None:
        self.events: deque[tuple[Judged, int]] = deque()
        self.missed = 0
        self._bytes = 0

    def add(self, event: Judged, size: int) -> None:
        self.events.append((event, size))
        self._bytes += size
        while len(self.events) > MAX_EVENTS or self._bytes > MAX_EVENT_BYTES:
            _, size = self.events.popleft()
            self._bytes -= size
            self.missed += 1


def _size_of(event: Judged) -> int:
    """About how much memory *event* takes."""
    size = sys.getsizeof(event)
    for name in event.__struct_fields__:
        value = getattr(event, name)
        size += len(memoryview(value)) if isinstance(value, msgspec.Raw) else sys.getsizeof(value)
    return size


class Functions:
    """Watches for all `FunctionalTermination` of a tree."""

    def __init__(self, leaves: Iterable[tuple[int, FunctionalTermination]], hits: Hits) -> None:
        self._hits = hits
        self._leaves = dict(leaves)
        self._events: dict[int, _Waiting] = {number: _Waiting() for number in self._leaves}
        self._asked: set[int] = set()

    def __repr__(self) -> str:
        return f"<Functions {len(self._asked)} of {len(self._leaves)} asked>"

    def event(self, event: Judged) -> None:
        """Anything that happens is something to look at."""
        size = _size_of(event)
        for waiting in self._events.values():
            waiting.add(event, size)

    def questions(self) -> list[Question]:
        """The calls to make now."""
        questions = []
        for number, waiting in self._events.items():
            if waiting.events and number not in self._asked:
                self._asked.add(number)
                events = tuple(event for event, _ in waiting.events)
                questions.append(Question(self._leaves[number], number, events, waiting.missed))
                self._events[number] = _Waiting()
        return questions

    def answered(self, question: Question, *, met: bool) -> None:
        """What the function said."""
        self._asked.discard(question.number)
        if met and self._events.pop(question.number, None) is not None:
            self._hits.append((question.number, "Functional termination condition met"))

    def failed(self, question: Question, detail: str) -> str:
        """It raised, or is late: it is asked no more.  The sentence that says so."""
        self._events.pop(question.number, None)
        return f"{question.condition} could not be judged: {plain(detail[:_LONGEST_DETAIL])}"
