"""What a person probably meant who wrote a word that there is not."""

from collections.abc import Iterable
from typing import Final

_LONGEST_WORD: Final = 64
"""Comparing takes time that grows with the square, and no word of ours is longer."""


def closest(word: str, known: Iterable[str]) -> str:
    """The one of *known* that *word* was probably meant to be, or nothing."""
    from difflib import get_close_matches  # hardly ever needed, and slow to import

    return next(iter(get_close_matches(word[:_LONGEST_WORD], list(known), 1, 0.6)), "")
