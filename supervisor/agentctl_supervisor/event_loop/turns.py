"""Shares the event loop's time among the data of all runs, by short turns one after the other.

A task that works on data from a run (messages, output, the records of a log) asks for a `Turn`,
works until the turn is over, and asks again.  Other work (stops, timers, the reports of keepers,
clients) needs no turn, and never waits for more than one round of turns.
"""

import time
from collections.abc import Generator
from typing import Final, Self, TypeVar

import trio

_T = TypeVar("_T")

TURN_S: Final = 0.0005
MAX_ITEMS: Final = 256
"""The most items in one turn, however fast they are."""
_ROUND_S: Final = 0.002
"""The seconds of work after which the event loop handles everything else."""
_TOGETHER: Final = 4
"""The turns that are given out together: as many as fit into a round."""


class Turn:
    """The permission to work for a short time.  Call `goes_on` before each item."""

    __slots__ = ("_began", "_is_of_round", "_items", "_turns")

    def __init__(self, turns: "Turns", *, is_of_round: bool) -> None:
        self._turns = turns
        self._is_of_round = is_of_round
        self._items = 0
        self._began = time.perf_counter()

    def goes_on(self) -> bool:
        """Return True if another item may be worked on; the first one always may."""
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

    ``used_s`` and ``used_items`` measure the work since the loop is last known to have handled
    everything else.  While that is little, and no task waits, a turn is given at once.
    """

    def __init__(self) -> None:
        self.used_s = 0.0
        self.used_items = 0
        self._waiting = trio.lowlevel.ParkingLot()
        #: The turns that were given to waiting tasks and are not over yet.
        self._given = 0

    def __repr__(self) -> str:
        return f"<Turns {self.used_s * 1000:.1f} ms used, {len(self._waiting)} waiting>"

    def now(self) -> Turn:
        """Return a turn without a wait, for the first read of the data left at a run's end."""
        return Turn(self, is_of_round=False)

    async def next(self) -> Turn:
        """Wait for a turn.  Use it at once, as a context manager."""
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
        """End a turn of the round.

        After the last one, the event loop handles everything else before the next turns begin.
        """
        self._given -= 1
        if not self._given and self._waiting:
            self._given = min(_TOGETHER, len(self._waiting))
            self._begin_round()
            # They run after all tasks that are ready now, and after the next check of epoll.
            self._waiting.unpark(count=self._given)

    def _begin_round(self) -> None:
        self.used_s, self.used_items = 0.0, 0


async def in_turns(steps: Generator[None, None, _T], *, first: bool = False) -> _T:
    """Run *steps* in turns with other tasks, and return their result.

    *first*: do not wait for the first turn.
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
    """Return the `Turns` of this event loop."""
    try:
        return _turns.get()
    except LookupError:
        common = Turns()
        _turns.set(common)
        return common
