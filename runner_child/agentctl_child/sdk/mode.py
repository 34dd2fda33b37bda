"""How an agent's function is called: one class for each kind of function.

A mode brings the function's own way of being cancelled.  Its file imports the
library it needs; all of them are imported before the agent's paths are.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol

from agentctl_child.sdk.cancellation import Interruption


class Mode(Protocol):
    """Calls a function in the main thread, and can be told from another to cancel it."""

    def call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> object:
        """What *function* returns or raises."""
        ...

    def interrupt(self) -> None:
        """Bring the stop to the function.  Called once, in another thread; never blocks."""
        ...

    def loop_turns(self) -> int:
        """How often the event loop was seen to turn; 0 where there is none."""
        ...

    def close(self) -> None:
        """End what the function left behind, after its outcome was reported."""
        ...


class SyncMode:
    """Calls a plain function."""

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption

    def call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> object:
        """What *function* returns or raises."""
        return function(*arguments)

    def interrupt(self) -> None:
        """Raise `RunCancelled` in the main thread."""
        self._interruption.interrupt_main()

    def loop_turns(self) -> int:
        """0: there is no event loop."""
        return 0

    def close(self) -> None:
        """Nothing: threads end with the process."""


def mode_for(function: Callable[..., object], interruption: Interruption) -> Mode:
    """The mode that *function* needs."""
    if is_coroutine_function(function):
        from agentctl_child.sdk.asyncio_mode import AsyncioMode

        return AsyncioMode(interruption)
    return SyncMode(interruption)


def is_coroutine_function(function: Callable[..., object]) -> bool:
    """Whether calling *function* gives a coroutine; looks through partials and ``__call__``."""
    while isinstance(function, functools.partial):
        function = function.func
    call = getattr(type(function), "__call__", None)  # noqa: B004 - what kind it is, not whether
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)
