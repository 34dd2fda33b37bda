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


def mounts() -> Iterator[Mount]:
    """All that this process has.  Raises OSError."""
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
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
    try:
        found = next((mount for mount in mounts() if mount.kind == b"cgroup2"), None)
    except OSError:
        return None
    return None if found is None else Path(found.point)
