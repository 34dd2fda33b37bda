"""Which text shows all that it is."""

import re
from typing import Final

_IGNORED: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Default_Ignorable_Code_Point (Unicode, DerivedCoreProperties.txt) among those that Python calls
printable: they take no room, and can carry any message."""


def is_visible(text: str) -> bool:
    """Whether each character of *text* is one that its reader sees."""
    return text.isprintable() and (text.isascii() or _IGNORED.search(text) is None)
