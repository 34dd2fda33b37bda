"""Remove the setuid and setgid bits from files that a run left, before others use the files.

A run cannot set these bits, with one exception: open(2) can make an empty file that has them.  When
the run writes to the file, the kernel removes the bits.  When root writes to it later, the kernel
keeps them, so a program that root copies there would be a setuid program.

This is safe for these reasons.  Only regular files that changed since the run began are touched,
and only these bits change.  A handle holds the inode from the check to the change: no name is
looked up twice, and no link is followed.  A user who made a setuid program there meanwhile by other
means has to do it again; the report names the file.
"""

import os
import stat
from typing import Final

from agentctl_supervisor.filesystem.open_beneath import HANDLE
from agentctl_supervisor.workspace.changes import OnEntry
from agentctl_supervisor.workspace.clock import is_since

BITS: Final = stat.S_ISUID | stat.S_ISGID


class TakingOff:
    """Take the bits off the entries of a walk, and call *then* for each entry.

    *since*: the time when the run began.
    ``refused``: the number of files that kept their bits.
    """

    def __init__(self, since: int, then: OnEntry | None = None) -> None:
        self.refused = 0
        self._since = since
        self._then = then

    def __repr__(self) -> str:
        return f"<TakingOff since {self._since}: {self.refused} refused>"

    def on_entry(self, directory: int, name: str, found: os.stat_result) -> None:
        """Take the bits off the entry *name* of *directory*, if the run may have set them."""
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
                # Through /proc, since fchmod(2) does not accept an O_PATH descriptor.
                os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(found.st_mode) & ~BITS)
        finally:
            os.close(handle)
