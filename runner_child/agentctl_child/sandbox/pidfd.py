"""Processes by pidfd and start time, never by a bare number."""

import contextlib
import os
import select
import signal
from typing import NamedTuple

from agentctl_protocol.spawning import ProcessIdentity


class ProcessStat(NamedTuple):
    """What of /proc/<pid>/stat decides about a process."""

    state: str
    parent: int
    start_time: int

    @property
    def alive(self) -> bool:
        """Zombies are dead."""
        return self.state not in "ZX"


def read_stat(pid: int) -> ProcessStat | None:
    """None if there is no such process (any more)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may contain anything, parentheses and spaces too.
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessStat(chr(fields[0][0]), int(fields[1]), int(fields[19]))


def identity_of(pid: int) -> ProcessIdentity:
    """The identity of a process that cannot vanish: ourselves, or a child not yet reaped."""
    stat = read_stat(pid)
    if stat is None:
        raise ProcessLookupError(f"no process {pid}")
    return ProcessIdentity(pid=pid, start_time=stat.start_time)


def send(pidfd: int, number: int) -> None:
    """Send a signal; a process that is gone already is no error."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


def has_ended(pidfd: int, timeout_s: float = 0.0) -> bool:
    """Whether the process is dead (a zombie, or reaped) within the time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def open_own() -> int:
    """A pidfd of this process, to hand to children."""
    return os.pidfd_open(os.getpid())


def tracer_of(pid: int) -> int:
    """Who traces a process; 0 if nobody does, or it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            _, _, rest = file.read().partition(b"\nTracerPid:\t")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(rest.split(None, 1)[0])
