"""Lists the files that the processes of a run have open for writing, from /proc.

This is done just before SIGKILL, so that the user knows which files may be half written.  Nothing
here touches the files themselves or the memory of a process: a file system that the agent made, or
a lock that it holds, could block us and so delay the kill.  Therefore two kinds of files are not
seen: those that are only mapped, without a descriptor, and those in the descriptor table that a
single thread has for itself.
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
"""The limit for all paths together: on a full disk they must fit into the log's reserve."""
_MAX_FILES: Final = 1000
_DELETED: Final = b" (deleted)"


class OpenFiles(NamedTuple):
    """The open files of a run.

    ``paths``: in the form that a report uses.  ``unread``: why there may be more, or empty.
    """

    paths: tuple[str, ...] = ()
    unread: str = ""


def open_for_writing(
    processes: Sequence[ProcessIdentity], roots: Sequence[bytes], budget_s: float = BUDGET_S
) -> OpenFiles:
    """Return the files beneath *roots* that *processes* have open for writing.

    The search stops after *budget_s* seconds.  Processes of other users, and processes that are
    not dumpable, cannot be read (ptrace(2), PTRACE_MODE_READ); ``unread`` says how many.
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
    """Add the files of *pid* to *found*; return False if the search was cut short."""
    # Read in pieces: a process may have a million descriptors.
    with os.scandir(f"/proc/{pid}/fd".encode()) as descriptors:
        for descriptor in descriptors:
            if time.monotonic() > deadline or len(found) > _MAX_FILES:
                return False
            try:
                path = os.readlink(descriptor.path)
                # Pipes and sockets have no path; a deleted file leaves nothing half written.
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
