"""The table of all settings, for files, environment and command line.

A key has the name of its option (``term-grace``).  Its environment variable has the same name in
capitals (``AGENTCTL_TERM_GRACE``).  Durations and sizes have the syntax of the command line in all
three places.
"""

import datetime as dt
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from agentctl_protocol.os_names import to_native
from agentctl_protocol.spec import SpecError, check_pattern
from agentctl_protocol.vocabulary import Network, Sandbox
from agentctl_supervisor.errors import UsageError
from agentctl_supervisor.text.durations import parse_duration, parse_limit
from agentctl_supervisor.text.sizes import parse_size
from agentctl_supervisor.text.suggestions import closest

MOST: Final = 256
"""The most entries of a list, and the most keys of a table."""

Value: TypeAlias = int | float | str | tuple[str, ...] | None
"""Seconds, bytes, a word of the vocabulary, a path, or several texts; None means no limit."""


class Place(msgspec.Struct, frozen=True):
    """The place where a setting is written.

    ``what``: the name of the setting for messages.
    ``base``: the directory that relative paths of the setting start from.
    ``home``: the replacement for ``~`` if the place is a file, else None.  On the command line and
    in the environment, the shell has already replaced ``~``.
    """

    what: str
    base: str
    home: str | None = None


class Key(msgspec.Struct, frozen=True):
    """A setting.

    ``field``: the field of `RunSpec`.
    ``many``: True if the values of all places are joined.
    """

    name: str
    field: str
    read: Callable[[Any, Place], Value]
    example: str
    many: bool = False

    @property
    def variable(self) -> str:
        """The name of the environment variable; a setting with ``many`` has no variable."""
        return f"AGENTCTL_{self.name.upper().replace('-', '_')}"


def _text(raw: Any, place: Place, example: str) -> str:
    if isinstance(raw, str):
        return raw
    raise UsageError(f"{place.what}: a text is wanted, not {_kind(raw)}", hint=example)


def _number_or_text(raw: Any, place: Place, example: str) -> str:
    if isinstance(raw, (int, float)) and not isinstance(raw, bool):
        return str(raw)
    return _text(raw, place, example)


def _limit(raw: Any, place: Place) -> Value:
    return parse_limit(_number_or_text(raw, place, 'write "10m"'), place.what)


def _duration(raw: Any, place: Place) -> Value:
    return parse_duration(_number_or_text(raw, place, 'write "10s"'), place.what)


def _size(raw: Any, place: Place) -> Value:
    text = _number_or_text(raw, place, 'write "10M"')
    if text == "none":
        return None
    size = parse_size(text, place.what)
    if size == 0:
        raise UsageError(
            f"{place.what}: 0 would end the run at its first byte", hint="none for no limit"
        )
    return size


def _level(raw: Any, place: Place) -> Value:
    text = _text(raw, place, 'write "strict"')
    try:
        return Sandbox(text)
    except ValueError:
        raise UsageError(
            f"{place.what}: no such sandbox level: {_shown(text)}", hint=_meant(text, Sandbox)
        ) from None


def _network(raw: Any, place: Place) -> Value:
    text = _text(raw, place, 'write "none"')
    try:
        return Network(text)
    except ValueError:
        raise UsageError(
            f"{place.what}: no such network: {_shown(text)}", hint=_meant(text, Network)
        ) from None


def _meant(text: str, words: Iterable[str]) -> str:
    known = list(words)
    close = closest(text, known)
    return f"did you mean {close}?" if close else " or ".join(known)


def _path(raw: Any, place: Place) -> Value:
    text = _name(_text(raw, place, 'write "a/path"'), place)
    if not text or "\0" in text or len(text) > 4096:
        raise UsageError(f"{place.what}: not a path: {_shown(text)}", hint='write "a/path"')
    if place.home is not None and (text == "~" or text.startswith("~/")):
        text = place.home + text[1:]
    # A text from the environment may have bytes that are not UTF-8; a path may have them, too.
    return os.path.abspath(os.path.join(place.base, text))


def _name(text: str, place: Place) -> str:
    """Convert *text* to a native name.

    In a settings file, a byte that is not UTF-8 is written in the text form of `os_names`.
    """
    if place.home is None:
        return text
    try:
        return to_native(text)
    except ValueError:  # a NUL in it; the functions that call this one refuse that
        return text


def _texts(raw: Any, place: Place) -> Sequence[str]:
    entries = list(raw) if isinstance(raw, (list, tuple)) else None
    if entries is None or not all(isinstance(entry, str) for entry in entries):
        wrong = next((one for one in entries or () if not isinstance(one, str)), raw)
        raise UsageError(
            f"{place.what}: a list of texts is wanted, not {_kind(wrong)}", hint='write ["a", "b"]'
        )
    if len(entries) > MOST:
        raise UsageError(f"{place.what}: more than {MOST} entries")
    return entries


def _paths(raw: Any, place: Place) -> Value:
    return tuple(str(_path(entry, place)) for entry in _texts(raw, place))


def _names(raw: Any, place: Place) -> Value:
    entries = tuple(_name(entry, place) for entry in _texts(raw, place))
    for entry in entries:
        if not entry or "\0" in entry or len(entry) > 4096:
            raise UsageError(f"{place.what}: not a name: {_shown(entry)}")
    return entries


def _variables(raw: Any, place: Place) -> Value:
    for entry in (entries := _texts(raw, place)):
        name = entry.partition("=")[0]
        if not name or "\0" in entry or not name.isprintable():
            raise UsageError(
                f"{place.what}: not a variable: {_shown(entry)}", hint="NAME or NAME=VALUE"
            )
    return tuple(entries)


def _count(raw: Any, place: Place) -> Value:
    text = _number_or_text(raw, place, "write 50").replace("_", "")
    if text == "none":
        return None
    if not text.isdecimal() or not 0 < int(text[:20]) < 1 << 63:
        raise UsageError(f"{place.what}: not a number above 0: {_shown(text)}", hint="write 50")
    return int(text)


def _patterns(raw: Any, place: Place) -> Value:
    for entry in (entries := _texts(raw, place)):
        _check_pattern(entry, place)
    return tuple(entries)


def _check_pattern(text: str, place: Place) -> None:
    try:
        check_pattern(text)
    except SpecError as error:
        raise UsageError(f"{place.what}: {error}", hint=error.hint) from None


def _budgets(raw: Any, place: Place) -> Value:
    for entry in (entries := _texts(raw, place)):
        pattern, equals, most = entry.rpartition("=")
        if not equals or not most.isdecimal() or len(most) > 18:
            raise UsageError(f"{place.what}: not a budget: {_shown(entry)}", hint="NAME=NUMBER")
        _check_pattern(pattern, place)
    return tuple(entries)


def budgets(entries: Sequence[str]) -> dict[str, int]:
    """Return the budgets by pattern; if a pattern has several, the smallest one counts."""
    found: dict[str, int] = {}
    for entry in entries:
        pattern, _, most = entry.rpartition("=")
        found[pattern] = min(int(most), found.get(pattern, int(most)))
    return found


def _condition(raw: Any, place: Place) -> Value:
    from agentctl_supervisor.conditions.condition_error import ConditionError
    from agentctl_supervisor.conditions.json_form import from_value

    text = _text(raw, place, """write 'max_messages(50)'""")
    try:
        return str(from_value(text))
    except ConditionError as error:
        raise UsageError(f"{place.what}: {error}", error.hint, error.excerpt) from None


def _kind(raw: Any) -> str:
    match raw:
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list() | tuple():
            return "a list"
        case dict():
            return "a table"
        case dt.date() | dt.time():
            return "a date"
    return "that"


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "...")


KEYS: Final = {
    key.name: key
    for key in (
        Key("sandbox", "sandbox", _level, '"strict"'),
        Key("net", "net", _network, '"none"'),
        Key("workspace", "workspace", _path, '"src"'),
        Key("ro", "ro", _paths, '["data"]', many=True),
        Key("rw", "rw", _paths, '["cache"]', many=True),
        Key("unprotect", "unprotect", _names, '[".git/hooks"]', many=True),
        Key("env", "env", _variables, '["LANG", "CI=1"]', many=True),
        Key("time", "time_s", _limit, '"10m"'),
        Key("grace", "grace_s", _duration, '"5s"'),
        Key("term-grace", "term_grace_s", _duration, '"2s"'),
        Key("output", "output_bytes", _size, '"10M"'),
        Key("calls", "calls", _count, "50"),
        Key("tokens", "tokens", _count, "100000"),
        Key("calls-of", "calls_of", _budgets, '["shell=3"]', many=True),
        Key("allow", "allow", _patterns, '["read_*"]', many=True),
        Key("deny", "deny", _patterns, '["shell:rm *"]', many=True),
        Key("approve", "approve", _patterns, '["shell"]', many=True),
        Key("stop-when", "stop_when", _condition, """'max_messages(50)'"""),
    )
}
