"""System calls that fail because a test wants them to.

``AGENTCTL_FAILPOINTS="syscall:mount_setattr:2:EPERM"``: the second ``mount_setattr`` of a
process fails with EPERM, as if the kernel had refused it.  Counted from `arm` on, and only
in processes that have called it, so that nothing but the set-up of a run is struck;
``syscall:init/mount_setattr:2:EPERM`` strikes in that process alone.  The names are those
that `syscalls` is given.  Without the variable, no cost.

``AGENTCTL_FAILPOINTS_FILE`` names a file with such words, which is read by each `arm`: so the
runs of one supervisor can be struck one after the other.  ``trace`` in it has each call told
on standard error, as ``syscall init/mount_setattr``.
"""

import errno
import os
from collections import Counter
from typing import Final

VARIABLE: Final = "AGENTCTL_FAILPOINTS"
PREFIX: Final = "syscall:"
FILE_VARIABLE: Final = "AGENTCTL_FAILPOINTS_FILE"
_TRACE: Final = "trace"


def _parse(text: str) -> dict[tuple[str, int], int]:
    failures = {}
    for part in text.split(","):
        if part.startswith(PREFIX):
            _, name, nth, word = part.split(":")
            failures[name, int(nth)] = int(getattr(errno, word))
    return failures


_TEXT: Final = os.environ.get(VARIABLE, "")
_FILE: Final = os.environ.get(FILE_VARIABLE, "")
_failures = _parse(_TEXT)
_calls: Counter[str] = Counter()
_process = ""
_armed = _traced = False


def arm(process: str) -> None:
    """From now on, count the calls of this *process* and let the chosen ones fail."""
    global _armed, _failures, _process, _traced
    if _FILE:
        with open(_FILE, encoding="ascii") as file:
            words = file.read()
        _failures = _parse(f"{_TEXT},{words}")
        _traced = _TRACE in words.split(",")
    _process = process
    _armed = bool(_failures) or _traced
    _calls.clear()


def strike(name: str) -> None:
    """Raise OSError if this call of *name* is to fail."""
    if not _armed:
        return
    own = f"{_process}/{name}"
    _calls[name] += 1
    if _traced:
        os.write(2, f"syscall {own}\n".encode())
    nth = _calls[name]
    number = _failures.get((own, nth)) or _failures.get((name, nth))
    if number is not None:
        raise OSError(number, f"{name}: {os.strerror(number)}")
