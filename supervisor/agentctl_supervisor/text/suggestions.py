"""Suggests the closest known word for an unknown one."""

from collections.abc import Iterable
from typing import Final

_LONGEST_WORD: Final = 64
"""The time to compare grows with the square of the length.  No known word is longer."""


def closest(word: str, known: Iterable[str]) -> str:
    """Return the word of *known* that is closest to *word*, or an empty string."""
    from difflib import get_close_matches  # hardly ever needed, and slow to import

    return next(iter(get_close_matches(word[:_LONGEST_WORD], list(known), 1, 0.6)), "")
