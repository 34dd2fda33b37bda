"""The records of a live run as they are appended, for the program that holds the run."""

import time
from collections.abc import Iterator
from typing import Final, Self

from agentctl_protocol.records import Record
from agentctl_supervisor.event_loop.turns import TURN_S, turns
from agentctl_supervisor.run.live_log import RunLog
from agentctl_supervisor.store.log_follower import LogFollower


class EventStream:
    """Iterates over the records of a run, from the first one to the last.

    It is not a generator, so a loop over it can be left at any time and nothing has to be
    closed.  A loop over a long log gives other tasks their turns.
    """

    def __init__(self, log: RunLog) -> None:
        self._log: Final = log
        self._follower: Final[LogFollower] = log.follow()
        self._unread: Iterator[Record] | None = None
        self._appended = log.appended
        self._is_last = False
        self._turns = turns()
        self._began = 0.0

    def __repr__(self) -> str:
        return f"<EventStream of {self._log!r}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Record:
        worked_s = time.perf_counter() - self._began
        if worked_s > TURN_S:
            self._turns.used_s += min(worked_s, 2 * TURN_S)
            with await self._turns.next():
                self._began = time.perf_counter()
        while True:
            if self._unread is None:
                # Before the read, so that a record appended in between is not missed.
                self._appended, self._is_last = self._log.appended, self._log.closed
                self._unread = self._follower.read()
            record = next(self._unread, None)
            if record is not None:
                return record
            self._unread = None
            if self._is_last:
                raise StopAsyncIteration
            await self._appended.wait()

    async def aclose(self) -> None:
        """Do nothing; this exists for `contextlib.aclosing`."""
