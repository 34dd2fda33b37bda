"""Converts the wall-clock nanoseconds of records to times for reports."""

from datetime import UTC, datetime
from typing import overload


@overload
def wall_time(ns: int) -> datetime: ...
@overload
def wall_time(ns: None) -> None: ...
@overload
def wall_time(ns: int | None) -> datetime | None: ...
def wall_time(ns: int | None) -> datetime | None:
    """Return *ns* nanoseconds since 1970 as a UTC time; None stays None."""
    return None if ns is None else datetime.fromtimestamp(ns / 1e9, UTC)
