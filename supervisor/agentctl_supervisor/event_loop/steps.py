"""Work in steps: a generator that yields each time that other tasks may have a turn."""

from collections.abc import Generator
from typing import TypeVar

_T = TypeVar("_T")


def whole(steps: Generator[None, None, _T]) -> _T:
    """Run all *steps* without a pause, and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: _T = stop.value
            return result
