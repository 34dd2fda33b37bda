"""The arguments of a call as rules see them: texts, whatever structure an agent puts them in.

Pure.  The same command comes as ``"rm -r x"``, ``["rm", "-r", "x"]``, ``{"cmd": "rm -r x"}`` and as
JSON in a text, with blanks, tabs, line ends and escapes of its agent's choice.  A rule that
forbids is held against every one of these texts; one that allows must be met by the whole.
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
"""Characters of a call's arguments that a rule sees.  What is longer meets every rule of an
approval and of a denial, and none of a permission: nothing slips past in a long tail."""

MAX_MATCHED_CONTAINERS: Final = 4096
"""Lists and maps in arguments that a rule sees; what has more is as what is too long."""

MAX_TEXTS: Final = 2048
"""Texts in a call's arguments that a rule is held against; more are like what is longer."""

_BEGIN_JSON: Final = ("{", "[", '"')
_DIGITS: Final = 20
_NESTED: Final = 4
"""How often JSON in a text in JSON in a text is looked into."""


@dataclass(frozen=True)
class Arguments:
    """``whole``: forms that stand for all of the arguments.  ``parts``: every text in them, too.

    Of the parts, capitals and the kind and amount of white space are taken away.
    """

    whole: tuple[str, ...]
    parts: frozenset[str]


def arguments_of(raw: msgspec.Raw) -> Arguments | None:
    """What rules see of *raw*; None if it is too long, or no value at all."""
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
    """*value* as JSON without blanks, its keys in order."""
    return msgspec.json.encode(value, order="sorted").decode()


def loose(text: str) -> str:
    """*text* without capitals, and with one blank for any white space in it."""
    return " ".join(text.casefold().split())


def _texts(value: Any, nested: int) -> Iterator[str]:
    """The texts in *value*, and lists of plain values as one line, as of a command's words.

    JSON in a text is looked into *nested* times.
    """
    if isinstance(value, str):
        yield value
        if nested and value.lstrip()[:1] in _BEGIN_JSON:
            try:
                # Not msgspec: it refuses what others take (lone surrogates, NaN).
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
    """How many values there are in *value* that hold no others."""
    if isinstance(value, dict):
        return sum(map(_leaves, value.values()))
    if isinstance(value, list):
        return sum(map(_leaves, value))
    return 1
