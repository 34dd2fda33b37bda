"""Which files the processes of a run have open for writing, as /proc shows it.

Asked just before SIGKILL, so that a person knows what may be half written.  Nothing here
touches the files themselves, nor the memory of a process: a file system of the agent's own
making, or a lock that it holds, could keep us waiting, and the kill with us.  So a file that
is only mapped, with no descriptor left, is not seen, nor what a single thread has in a
descriptor table of its own.
"""

import os
import stat
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from agentctl_protocol.os_names import to_text
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_supervisor.filesystem.writable_roots import relative_to

BUDGET_S: Final = 0.01
MAX_BYTES: Final = 4096
"""Of all paths together: on a full disk they have to fit into the log's reserve."""
_MAX_FILES: Final = 1000
_DELETED: Final = b" (deleted)"


class OpenFiles(NamedTuple):
    """Paths as a report has them, and why there may be more: empty if there are not."""

    paths: tuple[str, ...] = ()
    unread: str = ""


def open_for_writing(
    processes: Sequence[ProcessIdentity], roots: Sequence[bytes], budget_s: float = BUDGET_S
) -> OpenFiles:
    """What *processes* have open for writing beneath *roots*, looked for in *budget_s* seconds.

    Other users' processes, and those that are not dumpable, let us see nothing (ptrace(2),
    PTRACE_MODE_READ); they are counted in ``unread``.
    """
    if not roots:
        return OpenFiles()
    deadline = time.monotonic() + budget_s
    found: dict[bytes, None] = {}
    hidden = 0
    for number, process in enumerate(processes):
        try:
            is_cut = not _look_at(process.pid, roots, found, deadline)
        except PermissionError:
            hidden += 1
        except OSError:
            pass  # it is gone
        else:
            if is_cut:
                seen = f"{number} of {len(processes)} processes"
                return _told(found, f"only {seen} were asked what they have open")
    return _told(found, f"{hidden} processes do not show what they have open" if hidden else "")


def _look_at(pid: int, roots: Sequence[bytes], found: dict[bytes, None], deadline: float) -> bool:
    """Adds to *found*; False if that had to be cut short."""
    # Read in pieces: a process may have a million descriptors.
    with os.scandir(f"/proc/{pid}/fd".encode()) as descriptors:
        for descriptor in descriptors:
            if time.monotonic() > deadline or len(found) > _MAX_FILES:
                return False
            try:
                path = os.readlink(descriptor.path)
                # Pipes and the like have no path; what is deleted leaves nothing half written.
                if not path.startswith(b"/") or path.endswith(_DELETED):
                    continue
                told = relative_to(path, roots)
                # The link's own mode says how the file was opened (proc_pid_fd(5)).
                if told is not None and os.lstat(descriptor.path).st_mode & stat.S_IWUSR:
                    found[told] = None
            except FileNotFoundError:
                continue  # closed meanwhile
    return True


def _told(found: dict[bytes, None], unread: str) -> OpenFiles:
    paths: list[str] = []
    left_bytes = MAX_BYTES
    for path in sorted(found):
        left_bytes -= len(path)
        if left_bytes >= 0:
            paths.append(to_text(path))
    left_out = len(found) - len(paths)
    notes = [unread, f"{left_out} more files were open for writing" if left_out else ""]
    return OpenFiles(tuple(paths), "; ".join(filter(None, notes)))
