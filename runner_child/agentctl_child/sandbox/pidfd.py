"""Processes named by pidfd and start time, never by a bare number."""

import contextlib
import os
import select
import signal
from typing import NamedTuple

from agentctl_protocol.spawning import ProcessIdentity


class ProcessStat(NamedTuple):
    """The fields of /proc/<pid>/stat that decide about a process."""

    state: str
    parent: int
    start_time: int

    @property
    def alive(self) -> bool:
        """True if the process is alive; a zombie is dead."""
        return self.state not in "ZX"


def read_stat(pid: int) -> ProcessStat | None:
    """Return the fields of a process; None if it does not exist (any more)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may contain any character, parentheses and spaces too.
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessStat(chr(fields[0][0]), int(fields[1]), int(fields[19]))


def identity_of(pid: int) -> ProcessIdentity:
    """Return the identity of a process that cannot vanish: this one, or a child not yet reaped."""
    stat = read_stat(pid)
    if stat is None:
        raise ProcessLookupError(f"no process {pid}")
    return ProcessIdentity(pid=pid, start_time=stat.start_time)


def send(pidfd: int, number: int) -> None:
    """Send a signal; a process that is already gone is no error."""
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)


def has_ended(pidfd: int, timeout_s: float = 0.0) -> bool:
    """Return True if the process is dead (a zombie, or reaped) within the time."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def open_own() -> int:
    """Return a pidfd of this process, to pass to children."""
    return os.pidfd_open(os.getpid())


def tracer_of(pid: int) -> int:
    """Return the pid of a process's tracer; 0 if there is none, or the process is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            _, _, rest = file.read().partition(b"\nTracerPid:\t")
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(rest.split(None, 1)[0])
