"""The mode for functions written for asyncio.

This module is imported before the agent's paths are on ``sys.path``: an agent may have an
``asyncio.py`` of its own.
"""

import _thread
import asyncio
import os
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from agentctl_child.sdk.cancellation import CANCELLATIONS, LOOP_S, MACHINERY, Interruption
from agentctl_child.sdk.waiting import ThreadWaiter

#: Time in which the tasks that a finished function left behind must end.
LEFTOVERS_S: Final = 5.0

CANCELLATIONS.append(asyncio.CancelledError)
MACHINERY.append(os.path.dirname(asyncio.__file__) + os.sep)
# Made here: making it imports from asyncio by name, and later that name may be the agent's module.
asyncio.get_event_loop_policy()


class FutureWaiter:
    """A waiter for the event loop that runs in this thread."""

    __slots__ = ("_future", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> None:
        """End the wait, or the next one if none has begun."""
        try:
            self._loop.call_soon_threadsafe(self._resolve)
        except RuntimeError:
            pass  # the loop is closed: no task waits

    async def wait(self) -> None:
        """Suspend the calling task until `wake`."""
        await self._future

    def _resolve(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


class AsyncioMode:
    """Calls a coroutine function in a loop of its own; a stop cancels its task."""

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption
        self._runner = asyncio.Runner()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[object] | None = None
        self._reacted = ThreadWaiter()
        self._cancels = 0
        self._turns = 0
        interruption.task_was_told = _current_task_is_cancelling

    def call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> object:
        """Return or raise what *function* returns or raises."""
        return self._runner.run(self._main(function, arguments))

    async def _main(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> object:
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        self._loop = asyncio.get_running_loop()
        # After the two lines above: a stop either finds both values, or is found here.
        if self._interruption.token.is_cancelled:
            self._cancel()
        return await cast("Coroutine[Any, Any, object]", function(*arguments))

    def interrupt(self) -> None:
        """Cancel the task; if sync code blocks the loop, interrupt that code."""
        self._soon(self._cancel)
        _thread.start_new_thread(self._escalate, ())

    def loop_turns(self) -> int:
        """Return how often the loop has answered so far; ask it to answer once more."""
        self._soon(self._count_turn)
        return self._turns

    def close(self) -> None:
        """Cancel the tasks that are left and wait for their end.

        They have `LEFTOVERS_S`, or at a stop its grace period. Threads of the executor are not
        waited for: they end with the process.
        """
        if self._loop is None or self._loop.is_closed():
            return
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        is_stop = self._interruption.token.is_cancelled
        self._runner.run(_ended(tasks, None if is_stop else LEFTOVERS_S))

    def _cancel(self) -> None:
        self._reacted.wake()
        if self._task is not None and not self._cancels:
            self._cancels += 1
            self._interruption.mark_delivered()
            self._task.cancel(self._interruption.token.detail or None)

    def _escalate(self) -> None:
        if not self._reacted.wait(LOOP_S):
            self._interruption.interrupt_main()

    def _count_turn(self) -> None:
        self._turns += 1

    def _soon(self, callback: Callable[[], None]) -> None:
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(callback)
            except RuntimeError:
                pass  # the loop is closed: the function has ended


async def _ended(tasks: set[asyncio.Task[Any]], timeout: float | None) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=timeout)
    try:
        await asyncio.wait_for(asyncio.get_running_loop().shutdown_asyncgens(), timeout)
    except TimeoutError:
        pass


def _current_task_is_cancelling() -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and task.cancelling() > 0
