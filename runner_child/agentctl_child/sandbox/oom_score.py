"""The kernel's order of killing when memory is used up: proc_pid_oom_score_adj(5)."""

import contextlib
import errno
import os
from typing import Final

from agentctl_child.sandbox import syscalls

_FILE: Final = "/proc/self/oom_score_adj"
#: Counts as much as all of the machine's memory: killed before every process that is not of a run.
_FIRST: Final = 1000
#: Not -1000: a process that cannot be killed could hold the machine's last memory.
_LAST: Final = -900


def stand_first() -> None:
    """Let this process, and all that it starts, be killed before any process that is not of a run.

    Raising the score needs no privilege. If root does it, only a process with CAP_SYS_RESOURCE can
    lower it again; otherwise only a read-only /proc prevents that.
    """
    try:
        _write(_FIRST)
    except OSError as error:
        # A process with the ordinary score is no danger to others.
        if error.errno not in (errno.EROFS, errno.ENOENT) or _now() < 0:
            raise


def stand_last() -> None:
    """Let this process be killed after all others, if that is permitted (CAP_SYS_RESOURCE)."""
    with contextlib.suppress(OSError):
        if _now() > _LAST:
            _write(_LAST)


def _now() -> int:
    try:
        with open(_FILE, encoding="ascii") as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def _write(number: int) -> None:
    descriptor = syscalls.call("open", os.open, _FILE, os.O_WRONLY | os.O_CLOEXEC)
    try:
        syscalls.call("oom_score_adj", os.write, descriptor, b"%d" % number)
    finally:
        os.close(descriptor)
