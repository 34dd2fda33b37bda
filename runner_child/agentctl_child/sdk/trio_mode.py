"""The mode for functions written for trio, with the agent's own trio, which only it needs."""

import _thread
import os
from collections.abc import Awaitable, Callable
from typing import Any, cast

from agentctl_child.sdk.async_library import trio_module
from agentctl_child.sdk.cancellation import CANCELLATIONS, LOOP_S, MACHINERY, Interruption
from agentctl_child.sdk.waiting import ThreadWaiter


class TrioMode:
    """Calls an async function in a trio run of its own; a stop cancels the scope around it."""

    def __init__(self, interruption: Interruption) -> None:
        """Raise `TargetError` if the agent's interpreter has no trio."""
        self._interruption = interruption
        self._trio = trio_module()
        self._scope = self._trio.CancelScope()
        self._entry: Any = None
        self._reacted = ThreadWaiter()
        self._turns = 0
        CANCELLATIONS.append(self._trio.Cancelled)
        MACHINERY.append(os.path.dirname(self._trio.__file__) + os.sep)
        # Inside trio's own code an exception would break its loop. trio marks that code for its
        # own handler of Ctrl-C. There the loop continues to turn, and cancels by itself.
        interruption.may_raise_here = lambda: not self._trio.lowlevel.currently_ki_protected()

    def call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> object:
        """Return or raise what *function* does.

        Raises `RunCancelled` if the cancellation passed through the function.
        """
        returned: list[object] = []
        self._trio.run(self._main, function, arguments, returned)
        if not returned:
            raise self._interruption.cancelled()
        return returned[0]

    async def _main(
        self, function: Callable[..., object], arguments: tuple[Any, ...], returned: list[object]
    ) -> None:
        self._entry = self._trio.lowlevel.current_trio_token()
        # After the line above: a stop either finds the token, or is found here.
        if self._interruption.token.is_cancelled:
            self._cancel()
        with self._scope:
            returned.append(await cast("Awaitable[object]", function(*arguments)))

    def interrupt(self) -> None:
        """Cancel the scope; if sync code blocks the loop, interrupt that code."""
        self._soon(self._cancel)
        _thread.start_new_thread(self._escalate, ())

    def loop_turns(self) -> int:
        """Return how often the loop has answered so far; ask it to answer once more."""
        self._soon(self._count_turn)
        return self._turns

    def close(self) -> None:
        """Do nothing: trio leaves no task behind."""

    def _cancel(self) -> None:
        self._reacted.wake()
        self._interruption.mark_delivered()
        self._scope.cancel()

    def _escalate(self) -> None:
        if not self._reacted.wait(LOOP_S):
            self._interruption.interrupt_main()

    def _count_turn(self) -> None:
        self._turns += 1

    def _soon(self, callback: Callable[[], None]) -> None:
        if self._entry is not None:
            try:
                self._entry.run_sync_soon(callback)
            except self._trio.RunFinishedError:
                pass  # the function has ended


class EventWaiter:
    """A waiter for the trio loop that runs in this thread."""

    __slots__ = ("_entry", "_event", "_finished")

    def __init__(self, trio: Any) -> None:
        self._entry = trio.lowlevel.current_trio_token()
        self._event = trio.Event()
        self._finished = trio.RunFinishedError

    def wake(self) -> None:
        """End the wait, or the next one if none has begun."""
        try:
            self._entry.run_sync_soon(self._event.set)
        except self._finished:
            pass  # the loop is closed: no task waits

    async def wait(self) -> None:
        """Suspend the calling task until `wake`."""
        await self._event.wait()
