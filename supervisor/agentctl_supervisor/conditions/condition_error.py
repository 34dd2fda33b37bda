"""The error for a condition that cannot be understood, with its place in the text."""

import unicodedata
from collections.abc import Iterable
from typing import Final

from agentctl_protocol.spec import SpecError

WIDTH: Final = 78
"""Most columns of an excerpt, so that a terminal of 80 columns shows it unbroken."""

_CUT: Final = "..."


class ConditionError(SpecError):
    """The error for a condition that is not valid as it was written.

    The message is one line.  ``excerpt`` is empty if the error has no place in a text.
    Otherwise it has two lines: that part of the text, made safe for a terminal, and a caret
    below the place.  ``at`` is the place in characters from 0; -1: no place.
    """

    def __init__(self, text: str, hint: str = "", *, source: str = "", at: int = -1) -> None:
        where = f" (character {at + 1})" if at >= 0 else ""
        super().__init__(text + where, hint)
        self.at = at
        self.excerpt: tuple[str, ...] = excerpt(source, at) if at >= 0 else ()


def excerpt(source: str, at: int) -> tuple[str, str]:
    """Return two lines of at most `WIDTH` columns: *source* around *at*, and a caret below."""
    # A window is enough: `WIDTH` narrow characters on either side fill the whole line.
    first, last = max(0, at - WIDTH), min(len(source), at + WIDTH)
    shown = [_visible(char) for char in source[first:last]]
    before, after = shown[: at - first], shown[at - first :]
    left = WIDTH // 2
    if first == 0 and _columns(before) <= left:
        left, before_text = _columns(before), "".join(before)
    else:
        before_text = _CUT + "".join(_fitting(before[::-1], left - len(_CUT))[::-1])
        left = _columns(before_text)
    room = WIDTH - left
    if last == len(source) and _columns(after) <= room:
        after_text = "".join(after)
    else:
        after_text = "".join(_fitting(after, room - len(_CUT))) + _CUT
    return before_text + after_text, " " * left + "^"


def shown(text: str, longest: int = 40) -> str:
    """Return *text* in quotes and on one line, cut to *longest* characters."""
    cut = text if len(text) <= longest else text[:longest] + _CUT
    return f"'{''.join(map(_visible, cut))}'"


def _visible(char: str) -> str:
    return char if char.isprintable() else ascii(char)[1:-1]


def _columns(text: Iterable[str]) -> int:
    return sum(_width(char) for piece in text for char in piece)


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in {"W", "F"} else 1


def _fitting(pieces: list[str], columns: int) -> list[str]:
    """Return as many of *pieces*, from the first one on, as fit into *columns*."""
    fitting = []
    for piece in pieces:
        columns -= _columns(piece)
        if columns < 0:
            break
        fitting.append(piece)
    return fitting
