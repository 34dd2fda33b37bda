"""What is mounted where in our own mount namespace: /proc/self/mountinfo, proc(5)."""

from collections.abc import Iterator
from typing import NamedTuple


class Mount(NamedTuple):
    """One line.  ``options`` are the mount's own, ``root`` is what of the file system it shows."""

    root: bytes
    place: bytes
    options: frozenset[bytes]
    kind: bytes
    source: bytes


def mounts() -> Iterator[Mount]:
    """All mounts, those that lie on top later than what they cover."""
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            before, _, after = line.partition(b" - ")
            _, _, _, root, place, options, *_ = before.split(b" ")
            kind, source = after.split(b" ")[:2]
            yield Mount(
                unescaped(root), unescaped(place), frozenset(options.split(b",")), kind, source
            )


def unescaped(field: bytes) -> bytes:
    """Blanks, line ends and backslashes are octal escapes there."""
    first, *rest = field.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest)
