"""The lock of a run: its holder is the only writer of the run's log.

It is a flock(2) on the run's directory, so it is released when its holder dies, for whatever
reason.  A flock belongs to the open file description: a forked child of the holder would keep
it.  So forks by Python close the descriptor in the child, and executed programs never inherit
it.
"""

import contextlib
import errno
import fcntl
import os
import threading
import time
import weakref
from pathlib import Path
from typing import Final

from agentctl_supervisor.errors import StateDirectoryError

_TRY_EVERY_S: Final = 0.05


class RunLock:
    """The lock of the run in the directory *path*; at first it is not held."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._fd = -1
        _locks.add(self)

    def __repr__(self) -> str:
        return f"<RunLock {self.path.name}: {'held by us' if self.held else 'not ours'}>"

    @property
    def held(self) -> bool:
        """True if this object holds the lock."""
        return self._fd >= 0

    def take(self) -> bool:
        """Take the lock if nobody holds it; return True if this object holds it now.

        Raises:
            StateDirectoryError: the directory cannot be opened or locked at all.
        """
        if self.held:
            return True
        fd = self._open()
        try:
            while not _flock(fd, fcntl.LOCK_EX):
                # A process that only checks the lock holds a shared lock for a moment.  It does
                # not count as a holder.
                if not _flock(fd, fcntl.LOCK_SH):
                    return False
                fcntl.flock(fd, fcntl.LOCK_UN)
                os.sched_yield()
            self._fd, fd = fd, -1
            return True
        finally:
            if fd >= 0:
                os.close(fd)

    def wait_and_take(self, timeout_s: float) -> bool:
        """Take the lock when its holder releases it; return True if this object holds it now."""
        if self.take():
            return True
        fd = self._open()
        decided = threading.Lock()
        outcome: list[bool] = []  # the first entry: True if taken, False if too late

        def wait() -> None:
            taken = False
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX)
                taken = True
            with decided:
                outcome.append(taken)
            if outcome[0] is False:
                os.close(fd)

        # flock(2) has no time limit, so a thread waits.  It releases the lock if it is too late.
        waiter = threading.Thread(target=wait, name="agentctl run lock", daemon=True)
        try:
            waiter.start()
        except RuntimeError:  # no thread can be started: some run has used them up
            os.close(fd)
            return self._take_within(timeout_s)
        waiter.join(timeout_s)
        with decided:
            outcome.append(False)
        if outcome[0]:
            self._fd = fd
        return self.held

    def _take_within(self, timeout_s: float) -> bool:
        """Try to take the lock every 50 ms; used if no thread can be started to wait for it."""
        deadline = time.monotonic() + timeout_s
        while not self.take() and time.monotonic() < deadline:
            time.sleep(_TRY_EVERY_S)
        return self.held

    def wait_until_free(self) -> None:
        """Wait until nobody holds the lock, without a time limit.  This blocks the thread.

        Raises:
            StateDirectoryError: the directory cannot be opened.
        """
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
        finally:
            os.close(fd)

    def release(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def is_held(self) -> bool:
        """Return True if a live process, including this one, holds the lock.

        Raises:
            StateDirectoryError: the directory cannot be opened or locked at all.
        """
        if self.held:
            return True
        fd = self._open()
        try:
            return not _flock(fd, fcntl.LOCK_SH)
        finally:
            os.close(fd)

    def forget_in_child(self) -> None:
        """Close the descriptor in a forked child; the parent keeps the lock.

        Never use LOCK_UN here: parent and child share the lock.
        """
        self.release()

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise StateDirectoryError(f"cannot open {self.path}: {error.strerror}") from None


def _flock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            raise StateDirectoryError(
                f"this file system has no locks: {error.strerror}",
                "set AGENTCTL_HOME to a local directory",
            ) from None
        raise
    return True


_locks: Final = weakref.WeakSet[RunLock]()


def _close_in_child() -> None:
    for lock in list(_locks):
        lock.forget_in_child()


os.register_at_fork(after_in_child=_close_in_child)
