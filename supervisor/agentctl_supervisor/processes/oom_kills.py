"""Reads the kernel's counters of out-of-memory kills.

Only the kernel log names the killed processes, and few users may read it.  So the text for the
user says no more than the counters show.
"""

import os
from typing import Final, Protocol

from agentctl_protocol.records import ContainedRecord, Created

UNKNOWN: Final = -1


class RunFacts(Protocol):
    """The facts from a run's log that this module needs; `Fold` provides them."""

    @property
    def created(self) -> Created | None:
        """The first record of the log."""

    @property
    def contained(self) -> ContainedRecord | None:
        """The record of the run's keepers."""


def count() -> int:
    """Return the number of OOM kills on the whole machine (Linux 4.13), or `UNKNOWN`."""
    return _field("/proc/vmstat", "oom_kill")


def while_there_was(known: RunFacts) -> str:
    """Return a sentence for the user about OOM kills since a run was created, or empty.

    The counter of the run's own cgroup is more exact.  It is used if the cgroup still exists and
    has this counter.
    """
    created, contained = known.created, known.contained
    if contained is not None and contained.cgroup:
        own = _field(os.path.join(contained.cgroup, "memory.events"), "oom_kill")
        if own == 0:
            return ""
        if own > 0:
            return f"the kernel killed {own} of its processes for want of memory"
    if created is None or created.oom_kills == UNKNOWN or count() <= created.oom_kills:
        return ""
    return "the kernel killed processes for want of memory while it ran"


def _field(path: str, name: str) -> int:
    try:
        with open(path, encoding="ascii") as file:
            for line in file:
                key, _, number = line.partition(" ")
                if key == name:
                    return int(number)
    except (OSError, ValueError):
        pass
    return UNKNOWN
