"""System calls that fail because a test requests it.

``AGENTCTL_FAILPOINTS="syscall:mount_setattr:2:EPERM"`` makes the second ``mount_setattr`` of a
process fail with EPERM, as if the kernel had refused it. Calls are counted from `arm` on, and only
in processes that have called it, so that only the set-up of a run is affected.
``syscall:init/mount_setattr:2:EPERM`` affects only the process of that name. The names are those
that `syscalls` is given. Without the variable there is no cost.

``AGENTCTL_FAILPOINTS_FILE`` names a file with such words, which each `arm` reads. So each run of
one supervisor can get other failures. The word ``trace`` in the file reports each call on standard
error, as ``syscall init/mount_setattr``.
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
    """Count the calls of this *process* from now on, and let the selected ones fail."""
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
    """Raise OSError if this call of *name* is selected to fail."""
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
