"""Ends the processes that a dead supervisor may have left running.

The keepers of a run do this by themselves, within milliseconds.  This module is for a run whose
keepers were stopped or killed too, and it proves that nothing is left.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from agentctl_protocol.os_names import to_native
from agentctl_protocol.records import ContainedRecord, Created
from agentctl_protocol.report import Survivor
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.vocabulary import Containment
from agentctl_supervisor.processes.process_tree import (
    boot_id,
    command_line,
    is_alive,
    marked,
    members,
    open_pidfd,
    send_signal,
    wait_dead,
)

_KILL_S: Final = 10.0
#: Seconds that the warden may take to exit by itself after its run is empty.
_WARDEN_S: Final = 1.0


class Leftovers(NamedTuple):
    """The processes that were left of a run; after a restart of the machine there are none."""

    seen: int = 0
    killed: int = 0
    survivors: tuple[Survivor, ...] = ()
    is_after_restart: bool = False


def end_leftovers(
    created: Created | None, contained: ContainedRecord | None, run_id: str
) -> Leftovers:
    """Kill what is left of the run, its warden last, and return what was found."""
    if created is None:
        return Leftovers()
    if created.boot_id != boot_id():
        # The pids and start times in the log are from before the restart.
        return Leftovers(is_after_restart=True)
    deadline = time.monotonic() + _KILL_S
    seen: set[ProcessIdentity] = set()
    look = partial(_look, created, contained, run_id)
    left = _kill_until_empty(look, _cgroup(contained, run_id), seen, deadline)
    if contained is not None:
        # In the subreaper fallback, the warden adopts orphans of its run, so it is ended last.
        _end_warden(contained.warden)
        left = _kill_until_empty(look, None, seen, deadline)
    cgroup = _cgroup(contained, run_id)
    if cgroup is not None:
        _remove(cgroup)
    return Leftovers(
        seen=len(seen),
        killed=len(seen) - len(left),
        survivors=tuple(Survivor(who.pid, command_line(who.pid)) for who in left),
    )


def _look(
    created: Created, contained: ContainedRecord | None, run_id: str
) -> list[ProcessIdentity]:
    if contained is None:
        return marked(run_id, created.supervisor.start_time)
    found = members(contained, with_init=True)
    if contained.containment is Containment.SUBREAPER and not is_alive(contained.warden):
        # Its children have another parent now: only the marker that they carry identifies them.
        found += [who for who in marked(run_id, contained.warden.start_time) if who not in found]
    return found


def _kill_until_empty(
    look: Callable[[], list[ProcessIdentity]],
    cgroup: Path | None,
    seen: set[ProcessIdentity],
    deadline: float,
) -> list[ProcessIdentity]:
    """Kill what *look* finds until it finds nothing or time is up; return what is left then."""
    while left := look():
        seen.update(left)
        if cgroup is not None:
            # This kills all members at once, including processes being forked (kernel 5.14).
            with contextlib.suppress(OSError):
                (cgroup / "cgroup.kill").write_text("1")
        pidfds = [pidfd for who in left if (pidfd := open_pidfd(who)) is not None]
        try:
            for pidfd in pidfds:
                with contextlib.suppress(PermissionError):
                    send_signal(pidfd, signal.SIGKILL)
            all_dead = wait_dead(pidfds, deadline - time.monotonic())
        finally:
            for pidfd in pidfds:
                os.close(pidfd)
        if not all_dead or time.monotonic() > deadline:
            return look()
    return []


def _end_warden(warden: ProcessIdentity) -> None:
    pidfd = open_pidfd(warden)
    if pidfd is None:
        return
    try:
        if not wait_dead([pidfd], _WARDEN_S):
            with contextlib.suppress(PermissionError):
                send_signal(pidfd, signal.SIGKILL)
            wait_dead([pidfd], _WARDEN_S)
    finally:
        os.close(pidfd)


def _cgroup(contained: ContainedRecord | None, run_id: str) -> Path | None:
    """Return the run's own cgroup; a path that does not contain the run's id is not trusted."""
    if contained is None:
        return None
    path = Path(to_native(contained.cgroup))
    return path if run_id in path.name else None


def _remove(cgroup: Path) -> None:
    # Bottom-up: a cgroup with child cgroups cannot be removed (EBUSY).
    for directory, _, _ in os.walk(cgroup, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
