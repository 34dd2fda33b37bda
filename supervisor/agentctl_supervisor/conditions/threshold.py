"""The limits of a count: conditions that are met when the count is high enough."""

from collections.abc import Iterable
from typing import Final

_NEVER: Final = 1 << 63


class Threshold:
    """The limits that a count has not reached yet; below ``next``, no limit is reached.

    *limits*: pairs of the number of a leaf and the count that meets it.
    """

    def __init__(self, limits: Iterable[tuple[int, int]]) -> None:
        self._left = sorted(((limit, number) for number, limit in limits), reverse=True)
        self.next = self._left[-1][0] if self._left else _NEVER

    def __repr__(self) -> str:
        return f"<Threshold, next {self.next}>"

    def reached(self, count: int) -> list[tuple[int, int]]:
        """Return the number and limit of each leaf that *count* meets; each leaf only once."""
        reached = []
        while self._left and self._left[-1][0] <= count:
            limit, number = self._left.pop()
            reached.append((number, limit))
        self.next = self._left[-1][0] if self._left else _NEVER
        return reached
