"""Signals the end of a run: the moment when nobody holds its lock any more.

This covers every kind of end: the report is written before the lock is released, and the lock
of a supervisor that dies is released too.
"""

import contextlib
import os
import threading
from typing import Final

from agentctl_supervisor.errors import StateDirectoryError
from agentctl_supervisor.store.run_directory import RunDirectory


class RunEnd:
    """A descriptor that becomes readable when nobody holds the lock of the run any more.

    flock(2) cannot be polled, so a thread waits.  If the thread is no longer needed, it keeps
    waiting and holds nothing but a descriptor.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._event: Final = os.eventfd(0, os.EFD_CLOEXEC)
        threading.Thread(
            target=self._wait, args=(directory,), name="agentctl run end", daemon=True
        ).start()

    def __repr__(self) -> str:
        return f"<RunEnd {self._event}>"

    def fileno(self) -> int:
        """Return the descriptor to poll.  It is never closed: a thread may still write to it."""
        return self._event

    def _wait(self, directory: RunDirectory) -> None:
        # If the directory is gone, nobody holds its lock.
        with contextlib.suppress(StateDirectoryError):
            directory.wait_until_free()
        os.eventfd_write(self._event, 1)
