"""The mounts of our own mount namespace: /proc/self/mountinfo, proc(5)."""

import os
from collections.abc import Iterator
from typing import NamedTuple


class Mount(NamedTuple):
    """A line of that file.

    ``options`` are the mount's own. ``root`` is the part of the file system that the mount shows.
    """

    root: bytes
    place: bytes
    options: frozenset[bytes]
    kind: bytes
    source: bytes


def mounts(proc: int | None = None) -> Iterator[Mount]:
    """Yield all mounts; a mount that covers another comes after it.

    ``proc``: descriptor of the /proc to read, if /proc cannot be found by its name.
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
    """Return *field* with its octal escapes (blanks, line ends, backslashes) decoded."""
    first, *rest = field.split(b"\\")
    return first + b"".join(bytes([int(part[:3], 8)]) + part[3:] for part in rest)
