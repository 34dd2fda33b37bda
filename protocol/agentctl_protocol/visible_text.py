"""The check that a text shows everything that it contains."""

import re
from typing import Final

_IGNORED: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""The Default_Ignorable_Code_Point characters that Python calls printable.

They are those of Unicode's DerivedCoreProperties.txt. They take no room, and can carry any
message.
"""


def is_visible(text: str) -> bool:
    """Return True if the reader sees every character of *text*."""
    return text.isprintable() and (text.isascii() or _IGNORED.search(text) is None)
