"""Parses and formats durations as people write them: ``500ms``, ``1h30m``, ``2.5`` (seconds)."""

import re
from typing import Final

from agentctl_supervisor.errors import UsageError

_UNITS: Final = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
# Each unit at most once, and big units before small ones: "1m1h" is an error.
_SHAPE: Final = re.compile(
    "".join(rf"(?:(?P<{unit}>\d{{1,12}}(?:\.\d{{1,12}})?){unit})?" for unit in _UNITS), re.ASCII
)
_BARE: Final = re.compile(r"\d{1,12}(?:\.\d{1,12})?", re.ASCII)
_TOO_LONG_S: Final = 1e9
_HINT: Final = "write 500ms, 30s, 2m or 1h30m; a bare number is seconds"


def parse_duration(text: str, what: str) -> float:
    """Return the seconds of *text*, a duration given for the option *what*.

    Raises:
        UsageError: *text* is not a duration, or is 1e9 seconds or more.
    """
    if _BARE.fullmatch(text):
        seconds = float(text)
    else:
        match = _SHAPE.fullmatch(text)
        if not text or match is None:
            shown = text if len(text) <= 40 else text[:40] + "..."
            raise UsageError(f"{what}: not a duration: {shown!r}", hint=_HINT)
        seconds = sum(
            float(count) * _UNITS[unit] for unit, count in match.groupdict().items() if count
        )
    if seconds >= _TOO_LONG_S:
        raise UsageError(f"{what}: longer than 30 years", hint=_HINT)
    return seconds


def parse_limit(text: str, what: str) -> float | None:
    """Parse a limit like `parse_duration`, but return None for ``none`` and refuse zero.

    Raises:
        UsageError: *text* is neither ``none`` nor a duration above zero.
    """
    if text == "none":
        return None
    seconds = parse_duration(text, what)
    if seconds == 0:
        raise UsageError(
            f"{what}: 0 would end the run before it starts", hint=f"{what} none for no limit"
        )
    return seconds


def show_duration(seconds: float) -> str:
    """Return *seconds* as text for people, with two figures: ``0.01 s``, ``12 s``, ``3m 20s``."""
    if seconds < 0.1:
        return f"{max(seconds, 0.0):.2f} s"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    big, small, each = next(
        (big, small, each)
        for big, small, each in (("d", "h", 3600), ("h", "m", 60), ("m", "s", 1))
        if whole >= _UNITS[big]
    )
    count, rest = divmod(whole, int(_UNITS[big]))
    return f"{count}{big} {rest // each}{small}" if rest // each else f"{count}{big}"


def show_age(seconds: float) -> str:
    """Return *seconds* for a column of a table: in the biggest unit only."""
    whole = int(seconds)
    if whole >= 86400:
        return f"{whole // 86400}d"
    if whole >= 3600:
        return f"{whole // 3600}h"
    return f"{whole // 60}m" if whole >= 60 else f"{max(whole, 0)}s"
