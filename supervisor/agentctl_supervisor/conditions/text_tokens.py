"""Splits the text of a condition into tokens, each with its place."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from agentctl_supervisor.conditions.condition_error import ConditionError, shown

MAX_SOURCE: Final = 1 << 20
"""Most characters of a text.  A tree with the most conditions allowed is shorter."""

TokenKind: TypeAlias = Literal["name", "string", "number", "mark", "end"]

_BLANK: Final = re.compile(r"[ \t\r\n]*")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NUMBER: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_MARKS: Final = frozenset("()[],=|&")
_LONGEST_NUMBER: Final = 30

# The part of a string before its quote, an escape, or a control character.
_PLAIN: Final = {quote: re.compile(rf"[^{quote}\\\x00-\x1f\x7f]*") for quote in "\"'"}
_TWICE: Final = "there is no || and no &&: write | for or, & for and"


@dataclass(frozen=True, slots=True)
class Token:
    """A token: its characters as written, or the value of a string; ``at`` counts from 0."""

    kind: TokenKind
    text: str
    at: int


def tokens(source: str) -> Iterator[Token]:
    """Yield the tokens of *source*; the last one is of kind ``end``.

    Raises:
        ConditionError: a part of *source* is not a token.
    """
    if len(source) > MAX_SOURCE:
        raise ConditionError(f"a condition's text is longer than {MAX_SOURCE} characters")
    at = _skip(source, 0)
    while at < len(source):
        char = source[at]
        if char in _PLAIN:
            token, end = _string(source, at)
        elif char in _MARKS:
            token, end = Token("mark", char, at), at + 1
            if char in "|&" and source[at + 1 : at + 2] == char:
                raise ConditionError(f"{char} twice", _TWICE, source=source, at=at + 1)
        elif (word := _NAME.match(source, at)) is not None:
            token, end = Token("name", word[0], at), word.end()
        elif (number := _NUMBER.match(source, at)) is not None:
            if len(number[0]) > _LONGEST_NUMBER:
                raise ConditionError("a number that is too long", source=source, at=at)
            token, end = Token("number", number[0], at), number.end()
        else:
            raise _unexpected(source, at)
        yield token
        at = _skip(source, end)
    yield Token("end", "", len(source))


def _skip(source: str, at: int) -> int:
    blank = _BLANK.match(source, at)
    assert blank is not None
    return blank.end()


def _unexpected(source: str, at: int) -> ConditionError:
    char = source[at]
    hint = "texts go between \" or '"
    if char in "!~-":
        hint = "there is no 'not'"
    elif char in "\u201c\u201d\u2018\u2019\u201e":
        hint = "write straight quotes: \" or '"
    return ConditionError(f"{shown(char)} means nothing here", hint, source=source, at=at)


def _string(source: str, at: int) -> tuple[Token, int]:
    """Return the string that begins at *at*, and the place after it."""
    quote = source[at]
    here = at + 1
    pieces: list[str] = []
    while True:
        plain = _PLAIN[quote].match(source, here)
        assert plain is not None
        pieces.append(plain[0])
        here = plain.end()
        if here == len(source):
            raise ConditionError(
                "a string that is not closed", f"end it with {quote}", source=source, at=at
            )
        if source[here] == quote:
            return Token("string", _unescaped(source, at, here, pieces), at), here + 1
        if source[here] != "\\":
            raise ConditionError(
                f"a control character in a string: {shown(source[here])}",
                "write it as \\n, \\t or \\u001b",
                source=source,
                at=here,
            )
        pieces.append(source[here : here + 2])
        here += 2


def _unescaped(source: str, at: int, end: int, pieces: list[str]) -> str:
    quote = source[at]
    if not any(piece.startswith("\\") for piece in pieces):
        return "".join(pieces)
    if quote == "'":  # convert it to a string in double quotes, as in JSON
        pieces = [
            "'" if p == "\\'" else p if p[:1] == "\\" else p.replace('"', '\\"') for p in pieces
        ]
    try:
        text: str = json.loads(f'"{"".join(pieces)}"')
    except json.JSONDecodeError as error:
        # The position in the JSON text counts from the quote.  In *source*, the place is the same
        # or earlier.
        place = min(at + error.pos, end)
        raise ConditionError(
            "a \\ in a string that means nothing",
            'those of JSON do: \\" \\\\ \\n \\t \\u2026',
            source=source,
            at=place,
        ) from None
    return text
