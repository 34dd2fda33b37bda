"""The items that are sent to a running agent: `run.inputs()`."""

from collections import deque
from typing import Any

from agentctl_child.sdk.async_waiter import async_waiter
from agentctl_child.sdk.cancellation import Interruption
from agentctl_child.sdk.waiting import ThreadWaiter, Waiter


class InputQueue:
    """Passes items from the channel's thread to the iterators; each item goes to one of them."""

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption
        self._items: deque[Any] = deque()
        self._ended = False
        self._waiters: set[Waiter] = set()

    def __repr__(self) -> str:
        return f"<InputQueue {len(self._items)} waiting{', ended' if self._ended else ''}>"

    def put(self, item: Any) -> None:
        """Add *item* and wake the waiters."""
        self._items.append(item)
        self.wake()

    def end(self) -> None:
        """Record that no more items follow."""
        self._ended = True
        self.wake()

    def wake(self) -> None:
        """Wake all waiters, so that they check again."""
        for waiter in list(self._waiters):
            waiter.wake()

    def take(self) -> tuple[bool, Any]:
        """Return ``(True, item)``, or ``(False, None)`` at the end; block until either is known.

        Raises:
            RunCancelled: the run is being stopped.
        """
        while True:
            waiter = ThreadWaiter()
            self._waiters.add(waiter)
            try:
                if (taken := self._try_take()) is not None:
                    return taken
                waiter.wait()
            finally:
                self._waiters.discard(waiter)

    async def take_async(self) -> tuple[bool, Any]:
        """Do the same as `take`, for a task."""
        while True:
            waiter = async_waiter()
            self._waiters.add(waiter)
            try:
                if (taken := self._try_take()) is not None:
                    return taken
                await waiter.wait()
            finally:
                self._waiters.discard(waiter)

    def _try_take(self) -> tuple[bool, Any] | None:
        self._interruption.check()
        # No item can follow a cancel, not even for code that is handling it. The end is read
        # before the items: the last item and the end may both come in between.
        over = self._ended or self._interruption.token.is_cancelled
        try:
            return True, self._items.popleft()
        except IndexError:
            return (False, None) if over else None


class Inputs:
    """The items sent to this run, for ``for`` and for ``async for``."""

    def __init__(self, source: InputQueue | None) -> None:
        self._source = source

    def __iter__(self) -> "Inputs":
        return self

    def __next__(self) -> Any:
        found, item = (False, None) if self._source is None else self._source.take()
        if not found:
            raise StopIteration
        return item

    def __aiter__(self) -> "Inputs":
        return self

    async def __anext__(self) -> Any:
        found, item = (False, None) if self._source is None else await self._source.take_async()
        if not found:
            raise StopAsyncIteration
        return item
