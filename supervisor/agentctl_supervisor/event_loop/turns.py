"""Shares the event loop's time among all that runs send: a little at a time, one after the other.

Whoever works on what a run sent (messages, output, the records of a log) asks for a `Turn`,
works until it is over, and asks again.  What is not such work (stops, timers, the reports of
keepers, clients) asks for none and is never behind more than one round of them.
"""

import time
from collections.abc import Generator
from typing import Final, Self, TypeVar

import trio

_T = TypeVar("_T")

TURN_S: Final = 0.0005
MAX_ITEMS: Final = 256
"""Items in one turn, however fast they are."""
_ROUND_S: Final = 0.002
"""Work between two looks of the event loop at everything else."""
_TOGETHER: Final = 4
"""Turns that are given out together: as many as fit into a round."""


class Turn:
    """The right to work for a moment.  Call `goes_on` before each item."""

    __slots__ = ("_began", "_is_of_round", "_items", "_turns")

    def __init__(self, turns: "Turns", *, is_of_round: bool) -> None:
        self._turns = turns
        self._is_of_round = is_of_round
        self._items = 0
        self._began = time.perf_counter()

    def goes_on(self) -> bool:
        """Whether another item may be worked on; a first one always may."""
        self._items += 1
        if self._items == 1:
            return True
        return self._items <= MAX_ITEMS and time.perf_counter() - self._began < TURN_S

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._turns.used_s += time.perf_counter() - self._began
        self._turns.used_items += self._items
        if self._is_of_round:
            self._turns.end()


class Turns:
    """Gives out turns in one event loop, in the order in which they are asked for.

    ``used_s``, ``used_items``: work since the loop was last known to go round.  As long as that
    is little, and nobody waits, a turn is to be had at once.
    """

    def __init__(self) -> None:
        self.used_s = 0.0
        self.used_items = 0
        self._waiting = trio.lowlevel.ParkingLot()
        #: Turns that were given out to those who waited, and are not over.
        self._given = 0

    def __repr__(self) -> str:
        return f"<Turns {self.used_s * 1000:.1f} ms used, {len(self._waiting)} waiting>"

    def now(self) -> Turn:
        """A turn without waiting: for the first look at what is left at the end of a run."""
        return Turn(self, is_of_round=False)

    async def next(self) -> Turn:
        """Wait for a turn; to be used at once, as a context manager."""
        if self._given or self._waiting:
            await self._waiting.park()
            return Turn(self, is_of_round=True)
        if self.used_s < _ROUND_S and self.used_items < _TOGETHER * MAX_ITEMS:
            return Turn(self, is_of_round=False)
        self._given = 1
        try:
            await trio.lowlevel.checkpoint()
        except BaseException:
            self.end()
            raise
        self._begin_round()
        return Turn(self, is_of_round=True)

    def end(self) -> None:
        """A turn of the round is over; after the last, the loop goes round before the next ones."""
        self._given -= 1
        if not self._given and self._waiting:
            self._given = min(_TOGETHER, len(self._waiting))
            self._begin_round()
            # They run when all that is ready by now has run, and epoll was asked.
            self._waiting.unpark(count=self._given)

    def _begin_round(self) -> None:
        self.used_s, self.used_items = 0.0, 0


async def in_turns(steps: Generator[None, None, _T], *, first: bool = False) -> _T:
    """What *steps* come to; others have their turns in between.

    *first*: not to wait for the first turn.
    """
    common = turns()
    turn = common.now() if first else await common.next()
    while True:
        with turn:
            while turn.goes_on():
                try:
                    next(steps)
                except StopIteration as stop:
                    result: _T = stop.value
                    return result
        turn = await common.next()


_turns: Final = trio.lowlevel.RunVar[Turns]("turns")


def turns() -> Turns:
    """Those of this event loop."""
    try:
        return _turns.get()
    except LookupError:
        common = Turns()
        _turns.set(common)
        return common
