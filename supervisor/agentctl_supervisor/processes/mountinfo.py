"""Where the kernel's file systems are mounted, from ``/proc/self/mountinfo`` (proc(5))."""

from functools import cache
from pathlib import Path


@cache
def cgroup2_mount() -> Path | None:
    """The first cgroup v2 mount: ``/sys/fs/cgroup``, or ``…/unified`` on a hybrid host."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        before, _, after = line.partition(" - ")
        if after.split(" ", 1)[0] == "cgroup2":
            return Path(before.split(" ")[4].encode().decode("unicode_escape"))
    return None
