"""A condition that cannot be understood, and where in its text it cannot."""

import unicodedata
from collections.abc import Iterable
from typing import Final

from agentctl_protocol.spec import SpecError

WIDTH: Final = 78
"""Columns of an excerpt: it is shown on a terminal of 80 without being broken."""

_CUT: Final = "..."


class ConditionError(SpecError):
    """A condition that makes no sense as it was written.

    The message is one line.  ``excerpt`` holds no line (it has no place in a text), or
    two: that part of the text, made fit for a terminal, and a caret below its place.
    ``at`` counts characters from 0; -1: no place.
    """

    def __init__(self, text: str, hint: str = "", *, source: str = "", at: int = -1) -> None:
        where = f" (character {at + 1})" if at >= 0 else ""
        super().__init__(text + where, hint)
        self.at = at
        self.excerpt: tuple[str, ...] = excerpt(source, at) if at >= 0 else ()


def excerpt(source: str, at: int) -> tuple[str, str]:
    """Two lines of at most `WIDTH` columns: *source* around character *at*, and the caret."""
    # A window is enough: neither end can be nearer than this when all characters are narrow.
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
    """*text* in quotes and on one line, cut where it is too long."""
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
    """As many of *pieces*, from the first one on, as fit."""
    fitting = []
    for piece in pieces:
        columns -= _columns(piece)
        if columns < 0:
            break
        fitting.append(piece)
    return fitting
