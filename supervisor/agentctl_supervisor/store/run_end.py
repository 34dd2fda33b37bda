"""The end of a run as an event: the moment at which nobody holds its lock any more.

It covers every way to end: the report is written before the lock is given back, and a
supervisor that dies gives it back, too.
"""

import contextlib
import os
import threading
from typing import Final

from agentctl_supervisor.errors import StateDirectoryError
from agentctl_supervisor.store.run_directory import RunDirectory


class RunEnd:
    """Becomes readable, as a descriptor, once nobody holds the run of *directory* any more.

    flock(2) cannot be polled, so a thread waits; one that is not needed any more is left
    behind, and holds nothing but a descriptor.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._event: Final = os.eventfd(0, os.EFD_CLOEXEC)
        threading.Thread(
            target=self._wait, args=(directory,), name="agentctl run end", daemon=True
        ).start()

    def __repr__(self) -> str:
        return f"<RunEnd {self._event}>"

    def fileno(self) -> int:
        """The descriptor to be polled.  It is never closed: a thread may still write to it."""
        return self._event

    def _wait(self, directory: RunDirectory) -> None:
        # A directory that is gone is held by nobody.
        with contextlib.suppress(StateDirectoryError):
            directory.wait_until_free()
        os.eventfd_write(self._event, 1)
