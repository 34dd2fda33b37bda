"""Parse the settings in a file of git, with the syntax of git-config(1).  Pure.

A syntax error for git is also an error here.  It is not skipped, since a faulty line may be the
setting that matters after somebody has repaired the file.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|[#;][^\n]*)*")
_HEADER: Final = re.compile(r'\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\[^\n])*)")?\]')
_NAME: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:(=)[ \t]*|(?=[#;\r\n])|\Z)")
_PLAIN: Final = re.compile(r'[^"\\#;\n]*')
_PIECE: Final = re.compile(
    r'(?P<plain>[^"\\#;\n]+)|\\(?P<escaped>[\\"ntb]|\r?\n)|(?P<quote>")|(?P<comment>[#;])'
)
_ESCAPED: Final = {"\n": "", "\r\n": "", "n": "\n", "t": "\t", "b": "\b"}


class SyntaxFaultError(ValueError):
    """The text is not in git's syntax.  The message says in which line."""


class Setting(NamedTuple):
    """A setting.  ``section`` and ``key`` are in lower case; ``value`` is empty without ``=``."""

    section: str
    key: str
    value: str


def settings(text: str) -> Iterator[Setting]:
    """Yield all settings in *text*, in order.

    Raises:
        SyntaxFaultError: *text* is not in git's syntax.
    """
    text = text.removeprefix("\ufeff")
    section, at = "", _after_blank(text, 0)
    while at < len(text):
        if header := _HEADER.match(text, at):
            section, at = header[1].lower(), header.end()
        elif section and (name := _NAME.match(text, at)):
            value, at = _value(text, name.end()) if name[2] else ("", name.end())
            yield Setting(section, name[1].lower(), value)
        else:
            raise _fault(text, at)
        at = _after_blank(text, at)


def _after_blank(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    assert blank is not None
    return blank.end()


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the value that begins *at*, without trailing blanks, and the position of its end."""
    plain = _PLAIN.match(text, at)
    assert plain is not None
    if plain.end() == len(text) or text[plain.end()] == "\n":  # most values
        return plain[0].rstrip(" \t\r"), plain.end()
    found: list[str] = []
    kept = 0  # the number of pieces from which no trailing blanks are removed
    quoted = False
    while at < len(text) and (quoted or text[at] != "\n"):
        piece = _PIECE.match(text, at)
        if piece is None:
            raise _fault(text, at)
        if piece["quote"]:
            quoted = not quoted
        elif piece["comment"] and not quoted:
            break
        elif piece["escaped"] is not None:
            found.append(_ESCAPED.get(piece["escaped"], piece["escaped"]))
        else:
            found.append(piece[0])
        at = piece.end()
        if quoted or piece["quote"] or piece["escaped"]:
            kept = len(found)
    if quoted:
        raise _fault(text, at)
    return "".join(found[:kept]) + "".join(found[kept:]).rstrip(" \t\r"), at


def _fault(text: str, at: int) -> SyntaxFaultError:
    return SyntaxFaultError(f"line {text.count(chr(10), 0, at) + 1} is not in git's syntax")
