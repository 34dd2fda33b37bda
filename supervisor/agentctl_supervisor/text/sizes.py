"""Parses sizes as people type them: ``512M``, ``2G``, ``100`` (bytes)."""

import re
from typing import Final

from agentctl_supervisor.errors import UsageError

_UNITS: Final = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_SHAPE: Final = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([KMGT]?)(?:i?B)?", re.ASCII | re.IGNORECASE)


def parse_size(text: str, what: str) -> int:
    """Return the bytes of *text*, a size given for the option *what*.  K is 1,024 bytes.

    Raises:
        UsageError: *text* is not a size.
    """
    match = _SHAPE.fullmatch(text)
    if match is None:
        shown = text if len(text) <= 40 else text[:40] + "..."
        raise UsageError(
            f"{what}: not a size: {shown!r}", hint="write 100M or 2G; a bare number is bytes"
        )
    count, unit = match.groups()
    return int(float(count) * (1 << _UNITS[unit.upper()]))
