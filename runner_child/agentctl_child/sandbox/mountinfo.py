"""What is mounted where in our own mount namespace: /proc/self/mountinfo, proc(5)."""

import os
from collections.abc import Iterator
from typing import NamedTuple


class Mount(NamedTuple):
    """One line.  ``options`` are the mount's own, ``root`` is what of the file system it shows."""

    root: bytes
    place: bytes
    options: frozenset[bytes]
    kind: bytes
    source: bytes


def mounts(proc: int | None = None) -> Iterator[Mount]:
    """All mounts, those that lie on top later than what they cover.

    ``proc``: descriptor of the /proc to ask, where it is not to be found by its name.
    """
    path = "/proc/self/mountinfo" if proc is None else "self/mountinfo"
    with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc), "rb") as file:
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
