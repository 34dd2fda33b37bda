"""Whether the kernel killed processes because memory was used up, as it counts that.

Whom it killed is in its log only, which few may read; so what is said is what is known.
"""

import os
from typing import Final, Protocol

from agentctl_protocol.records import ContainedRecord, Created

UNKNOWN: Final = -1


class RunFacts(Protocol):
    """What a run's log says of it, as `Fold` has it."""

    @property
    def created(self) -> Created | None:
        """Its first record."""

    @property
    def contained(self) -> ContainedRecord | None:
        """The record of its keepers."""


def count() -> int:
    """How many processes it has killed so, on the whole machine (Linux 4.13); or `UNKNOWN`."""
    return _field("/proc/vmstat", "oom_kill")


def while_there_was(known: RunFacts) -> str:
    """What is told of such kills since a run was created, for people; empty if nothing.

    Where the run's control group counts for itself, and is still there, it knows better.
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
