"""Takes the setuid and setgid bits off what a run left, before somebody on the host uses it.

A run is refused to set them, but for one way: open(2) can make an empty file that has them.
What the run writes to it takes them away; what root writes later does not, and so whatever root
copies there would be a setuid program.

Why it is safe.  Only an ordinary file that changed since the run began is touched, and nothing
of it but these bits.  Its inode is held by a handle from the check to the change: no name is
looked up twice, no link is followed.  Who made a setuid program there meanwhile, by other
means, has to do it again: the report names it.
"""

import os
import stat
from typing import Final

from agentctl_supervisor.filesystem.open_beneath import HANDLE
from agentctl_supervisor.workspace.changes import OnEntry
from agentctl_supervisor.workspace.clock import is_since

BITS: Final = stat.S_ISUID | stat.S_ISGID


class TakingOff:
    """Told of each entry of a walk, and tells *then* of it; *since*: when the run began.

    ``refused``: how many files have kept their bits.
    """

    def __init__(self, since: int, then: OnEntry | None = None) -> None:
        self.refused = 0
        self._since = since
        self._then = then

    def __repr__(self) -> str:
        return f"<TakingOff since {self._since}: {self.refused} refused>"

    def on_entry(self, directory: int, name: str, found: os.stat_result) -> None:
        """Take the bits off the entry *name* of *directory*, if it has them from the run."""
        if found.st_mode & BITS and self._is_of_the_run(found):
            try:
                self._take_off(directory, name)
            except FileNotFoundError:
                pass
            except OSError:
                self.refused += 1
        if self._then is not None:
            self._then(directory, name, found)

    def _is_of_the_run(self, found: os.stat_result) -> bool:
        return stat.S_ISREG(found.st_mode) and is_since(found.st_ctime_ns, self._since)

    def _take_off(self, directory: int, name: str) -> None:
        handle = os.open(name, HANDLE, dir_fd=directory)
        try:
            found = os.fstat(handle)
            if found.st_mode & BITS and self._is_of_the_run(found):
                # Through /proc, since fchmod(2) takes no such handle.
                os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(found.st_mode) & ~BITS)
        finally:
            os.close(handle)
