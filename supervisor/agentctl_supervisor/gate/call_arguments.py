"""Converts the arguments of a call to texts, in which rules can be matched.

Pure.  An agent can send the same command as ``"rm -r x"``, ``["rm", "-r", "x"]``,
``{"cmd": "rm -r x"}`` or as JSON in a text, with any blanks, tabs, line ends and escapes.  A
rule that forbids is matched against every one of these texts.  A rule that allows must match
the arguments as a whole.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from agentctl_protocol.errors import PeerProtocolError
from agentctl_protocol.values import open_value

MAX_MATCHED_ARGUMENTS: Final = 1 << 16
"""Most characters of a call's arguments that a rule is matched against.  Longer arguments match
every rule that denies or asks for approval, and no rule that allows: so a forbidden command
cannot be hidden at the end of long arguments."""

MAX_MATCHED_CONTAINERS: Final = 4096
"""Most lists and maps in matched arguments; more of them count as too long."""

MAX_TEXTS: Final = 2048
"""Most texts in matched arguments; more of them count as too long."""

_BEGIN_JSON: Final = ("{", "[", '"')
_DIGITS: Final = 20
_NESTED: Final = 4
"""Levels of JSON inside a text that are decoded."""


@dataclass(frozen=True)
class Arguments:
    """The texts of a call's arguments that rules are matched against.

    ``whole``: forms that represent all of the arguments.  ``parts``: these forms and every text
    inside the arguments, as `loose` makes them: without capitals, with single blanks.
    """

    whole: tuple[str, ...]
    parts: frozenset[str]


def arguments_of(raw: msgspec.Raw) -> Arguments | None:
    """Return the texts of *raw* for rules; None if it is too long, or not a valid value."""
    if len(memoryview(raw)) > 4 * MAX_MATCHED_ARGUMENTS:
        return None
    try:
        value: Any = open_value(raw, "arguments", MAX_MATCHED_CONTAINERS)
        texts = list(islice(_texts(value, _NESTED), MAX_TEXTS + 1))
        whole: tuple[str, ...] = (value,) if isinstance(value, str) else (as_json(value),)
        if type(value) in (dict, list) and _leaves(value) == 1:
            whole += (texts[0],)
        parts = {loose(text) for text in (*whole, *texts)}
    except (PeerProtocolError, msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        return None
    if len(texts) > MAX_TEXTS or max(map(len, whole)) > MAX_MATCHED_ARGUMENTS:
        return None
    return Arguments(whole, frozenset(parts))


def as_json(value: Any) -> str:
    """Return *value* as JSON without blanks, with sorted keys."""
    return msgspec.json.encode(value, order="sorted").decode()


def loose(text: str) -> str:
    """Return *text* without capitals, and with one blank for any white space in it."""
    return " ".join(text.casefold().split())


def _texts(value: Any, nested: int) -> Iterator[str]:
    """Yield the texts in *value*; a list of plain values also as one line, like a command.

    JSON inside a text is decoded up to *nested* levels deep.
    """
    if isinstance(value, str):
        yield value
        if nested and value.lstrip()[:1] in _BEGIN_JSON:
            try:
                # Not msgspec: it refuses JSON that other parsers accept (lone surrogates, NaN).
                inner = json.loads(value, parse_int=_integer)
            except ValueError:
                return
            yield json.dumps(inner, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            yield from _texts(inner, nested - 1)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each, nested)
    elif isinstance(value, list):
        if not any(isinstance(each, dict | list) for each in value):
            yield " ".join(each if isinstance(each, str) else as_json(each) for each in value)
        for each in value:
            yield from _texts(each, nested)
    else:
        yield as_json(value)


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) < _DIGITS else digits


def _leaves(value: Any) -> int:
    """Count the values inside *value* that are not containers."""
    if isinstance(value, dict):
        return sum(map(_leaves, value.values()))
    if isinstance(value, list):
        return sum(map(_leaves, value))
    return 1
