"""System calls that fail because a test wants them to.

``AGENTCTL_FAILPOINTS="syscall:mount_setattr:2:EPERM"``: the second ``mount_setattr`` of a
process fails with EPERM, as if the kernel had refused it.  Counted from `arm` on, and only
in processes that have called it, so that nothing but the set-up of a run is struck.
The names are those that `syscalls` is given.  Without the variable, no cost.
"""

import errno
import os
from collections import Counter
from typing import Final

VARIABLE: Final = "AGENTCTL_FAILPOINTS"
PREFIX: Final = "syscall:"


def _parse(text: str) -> dict[tuple[str, int], int]:
    failures = {}
    for part in text.split(","):
        if part.startswith(PREFIX):
            _, name, nth, word = part.split(":")
            failures[name, int(nth)] = int(getattr(errno, word))
    return failures


_FAILURES: Final = _parse(os.environ.get(VARIABLE, ""))
_calls: Counter[str] = Counter()
_armed = False


def arm() -> None:
    """From now on, count this process's calls and let the chosen ones fail."""
    global _armed
    _armed = bool(_FAILURES)
    _calls.clear()


def strike(name: str) -> None:
    """Raise OSError if this call of *name* is to fail."""
    if not _armed:
        return
    _calls[name] += 1
    number = _FAILURES.get((name, _calls[name]))
    if number is not None:
        raise OSError(number, f"{name}: {os.strerror(number)}")
