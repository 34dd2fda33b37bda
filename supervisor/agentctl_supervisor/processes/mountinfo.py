"""What is mounted where, from ``/proc/self/mountinfo`` (proc(5))."""

import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class Mount(NamedTuple):
    """``root`` of the file system on ``device``, of the type ``kind``, is shown at ``point``."""

    device: bytes
    root: str
    point: str
    kind: bytes


def table() -> bytes:
    """All that this process has; nothing where /proc does not say."""
    try:
        return Path("/proc/self/mountinfo").read_bytes()
    except OSError:
        return b""


def mounts(lines: bytes) -> Iterator[Mount]:
    """The mounts of a `table`."""
    for line in lines.splitlines():
        before, _, after = line.partition(b" - ")
        _, _, device, root, point, *_ = before.split(b" ")
        yield Mount(device, _unescaped(root), _unescaped(point), after.split(b" ", 1)[0])


def _unescaped(field: bytes) -> str:
    """Blanks, line ends and backslashes are octal escapes there."""
    if b"\\" in field:
        field = _ESCAPED.sub(lambda found: bytes((int(found[1], 8) & 0xFF,)), field)
    return os.fsdecode(field)


@cache
def cgroup2_mount() -> Path | None:
    """The first cgroup v2 mount: ``/sys/fs/cgroup``, or ``…/unified`` on a hybrid host."""
    found = next((mount for mount in mounts(table()) if mount.kind == b"cgroup2"), None)
    return None if found is None else Path(found.point)
