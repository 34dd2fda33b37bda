"""The ways to call an agent's function: one class for each kind of function.

A mode also cancels the function in the way of that kind.
"""

from collections.abc import Callable
from typing import Any, Protocol

from agentctl_child.sdk.cancellation import Interruption


class Mode(Protocol):
    """Calls a function in the main thread; another thread can tell it to cancel the function."""

    def call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> object:
        """Return or raise what *function* returns or raises."""
        ...

    def interrupt(self) -> None:
        """Bring the stop to the function. Called once, in another thread; never blocks."""
        ...

    def loop_turns(self) -> int:
        """Return how often the event loop was seen to turn; 0 if there is none."""
        ...

    def close(self) -> None:
        """End what the function left behind, after its outcome was reported."""
        ...


class SyncMode:
    """Calls a plain function."""

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption

    def call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> object:
        """Return or raise what *function* returns or raises."""
        return function(*arguments)

    def interrupt(self) -> None:
        """Raise `RunCancelled` in the main thread."""
        self._interruption.interrupt_main()

    def loop_turns(self) -> int:
        """Return 0: there is no event loop."""
        return 0

    def close(self) -> None:
        """Do nothing: threads end with the process."""
