"""Collects the events that the functions of a tree have to judge, and takes their answers.

The judge itself calls no function: a function could block it or raise any exception.  The
owner of the judge takes each `Question`, runs `Question.answer` on a worker thread with a
deadline, and tells the judge the result.  Each function has at most one open question; events
that arrive meanwhile go into its next question.
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
"""Most bytes of events that wait for one function; beyond that, it misses the oldest ones."""

_LONGEST_DETAIL: Final = 200


class FunctionFailedError(Exception):
    """The error for a function that raised a `BaseException`, which would end our event loop.

    The text says what was raised.
    """


class Question(msgspec.Struct, frozen=True):
    """A call to make: do *events* meet *condition*?

    ``missed``: the number of events since the last call that the function never sees, because
    it was too slow.
    """

    condition: FunctionalTermination
    number: int
    events: tuple[Any, ...]
    missed: int = 0

    def answer(self) -> bool:
        """Call the function.  As with AutoGen, only True counts, not other truthy values.

        A coroutine function runs in an event loop of its own.  Call this on a thread that
        nobody waits for without a deadline.

        Raises:
            Exception: the exception that the function raised.
            FunctionFailedError: the function raised a `BaseException` that is no `Exception`,
                such as the `TerminatedException` of AutoGen's conditions, or an exit.
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
    """The events that one function has not seen yet, and the number of events it missed."""

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
    """Return the approximate memory that *event* takes, in bytes."""
    size = sys.getsizeof(event)
    for name in event.__struct_fields__:
        value = getattr(event, name)
        size += len(memoryview(value)) if isinstance(value, msgspec.Raw) else sys.getsizeof(value)
    return size


class Functions:
    """The watcher for all `FunctionalTermination` of a tree."""

    def __init__(self, leaves: Iterable[tuple[int, FunctionalTermination]], hits: Hits) -> None:
        self._hits = hits
        self._leaves = dict(leaves)
        self._events: dict[int, _Waiting] = {number: _Waiting() for number in self._leaves}
        self._asked: set[int] = set()

    def __repr__(self) -> str:
        return f"<Functions {len(self._asked)} of {len(self._leaves)} asked>"

    def event(self, event: Judged) -> None:
        """Keep *event* for the next question to each function."""
        size = _size_of(event)
        for waiting in self._events.values():
            waiting.add(event, size)

    def questions(self) -> list[Question]:
        """Return the calls to make now."""
        questions = []
        for number, waiting in self._events.items():
            if waiting.events and number not in self._asked:
                self._asked.add(number)
                events = tuple(event for event, _ in waiting.events)
                questions.append(Question(self._leaves[number], number, events, waiting.missed))
                self._events[number] = _Waiting()
        return questions

    def answered(self, question: Question, *, met: bool) -> None:
        """Take the answer of a function."""
        self._asked.discard(question.number)
        if met and self._events.pop(question.number, None) is not None:
            self._hits.append((question.number, "Functional termination condition met"))

    def failed(self, question: Question, detail: str) -> str:
        """Ask a function no more that raised or was late; return the sentence for the report."""
        self._events.pop(question.number, None)
        return f"{question.condition} could not be judged: {plain(detail[:_LONGEST_DETAIL])}"
