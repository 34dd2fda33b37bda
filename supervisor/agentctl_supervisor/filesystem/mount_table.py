"""What is mounted where, from ``/proc/self/mountinfo`` (proc(5))."""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """``root`` of the file system on ``device``, of the type ``kind``, is shown at ``point``.

    ``number``: by which the kernel tells mounts apart, for as long as they live.
    """

    number: int
    device: bytes
    root: str
    point: str
    kind: str


def table() -> bytes:
    """All that this process has.  Raises OSError: /proc is not there."""
    return Path("/proc/self/mountinfo").read_bytes()


def mounts(lines: bytes) -> Iterator[Mount]:
    """The mounts of a `table`."""
    # Not splitlines: the name of a directory may have a carriage return in it.
    for line in lines.split(b"\n"):
        before, _, after = line.partition(b" - ")
        fields = before.split(b" ")
        if len(fields) > 4:
            number, _, device, root, point = fields[:5]
            kind = after.split(b" ", 1)[0].decode("ascii", "replace")
            yield Mount(int(number), device, _unescaped(root), _unescaped(point), kind)


def _unescaped(field: bytes) -> str:
    """Blanks, line ends and backslashes are octal escapes there."""
    if b"\\" in field:
        field = _ESCAPED.sub(lambda found: bytes((int(found[1], 8) & 0xFF,)), field)
    return os.fsdecode(field)


def mount_of(path: str) -> int | None:
    """The number of the mount that *path*, no link, is found on; None if it is not there.

    Raises:
        OSError: that cannot be known.
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
    """The first cgroup v2 mount: ``/sys/fs/cgroup``, or ``…/unified`` on a hybrid host."""
    try:
        found = next((mount for mount in mounts(table()) if mount.kind == "cgroup2"), None)
    except OSError:
        return None
    return None if found is None else Path(found.point)
