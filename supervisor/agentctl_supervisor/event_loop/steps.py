"""Work in steps: a generator that yields whenever others may have their turn."""

from collections.abc import Generator
from typing import TypeVar

_T = TypeVar("_T")


def whole(steps: Generator[None, None, _T]) -> _T:
    """What *steps* come to, all of them at once."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: _T = stop.value
            return result
