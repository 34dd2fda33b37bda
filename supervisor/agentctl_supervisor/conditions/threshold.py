"""A count, and the conditions that are met when it is high enough."""

from collections.abc import Iterable
from typing import Final

_NEVER: Final = 1 << 63


class Threshold:
    """Compare a count with ``next``: below it, nothing has to be done.

    *limits*: number of a leaf, and the count that meets it.
    """

    def __init__(self, limits: Iterable[tuple[int, int]]) -> None:
        self._left = sorted(((limit, number) for number, limit in limits), reverse=True)
        self.next = self._left[-1][0] if self._left else _NEVER

    def __repr__(self) -> str:
        return f"<Threshold, next {self.next}>"

    def reached(self, count: int) -> list[tuple[int, int]]:
        """Number and limit of those that *count* meets; each is told once."""
        reached = []
        while self._left and self._left[-1][0] <= count:
            limit, number = self._left.pop()
            reached.append((number, limit))
        self.next = self._left[-1][0] if self._left else _NEVER
        return reached
