"""Read the mounts of this process from ``/proc/self/mountinfo`` (proc(5))."""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """A mount: ``root`` of the file system on ``device``, of type ``kind``, appears at ``point``.

    ``number``: the kernel's mount ID, which is unique while the mount exists.
    """

    number: int
    device: bytes
    root: str
    point: str
    kind: str


def table() -> bytes:
    """Return the mount table of this process.  Raises OSError if /proc does not exist."""
    return Path("/proc/self/mountinfo").read_bytes()


def mounts(lines: bytes) -> Iterator[Mount]:
    """Yield the mounts of a `table`."""
    # Not splitlines: the name of a directory may have a carriage return.
    for line in lines.split(b"\n"):
        before, _, after = line.partition(b" - ")
        fields = before.split(b" ")
        if len(fields) > 4:
            number, _, device, root, point = fields[:5]
            kind = after.split(b" ", 1)[0].decode("ascii", "replace")
            yield Mount(int(number), device, _unescaped(root), _unescaped(point), kind)


def _unescaped(field: bytes) -> str:
    """Decode the octal escapes of *field*: of blanks, line ends and backslashes."""
    if b"\\" in field:
        field = _ESCAPED.sub(lambda found: bytes((int(found[1], 8) & 0xFF,)), field)
    return os.fsdecode(field)


def mount_of(path: str) -> int | None:
    """Return the number of the mount that *path*, with no link followed at its end, is on.

    The result is None if *path* does not exist.

    Raises:
        OSError: *path* cannot be examined.
    """
    try:
        fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        lines = Path(f"/proc/self/fdinfo/{fd}").read_bytes().splitlines()
        return next(int(line[7:]) for line in lines if line.startswith(b"mnt_id:"))
    finally:
        os.close(fd)


@cache
def cgroup2_mount() -> Path | None:
    """Return the first cgroup v2 mount: ``/sys/fs/cgroup``, or ``…/unified`` on a hybrid host."""
    try:
        found = next((mount for mount in mounts(table()) if mount.kind == "cgroup2"), None)
    except OSError:
        return None
    return None if found is None else Path(found.point)
