"""How an agent's function is called: one class for each kind of function.

A mode brings the function's own way of being cancelled.
"""

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
