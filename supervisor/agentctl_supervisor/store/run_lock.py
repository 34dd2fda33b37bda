"""The lock of a run: whoever holds it is the one writer of its log.

It is a flock(2) on the run's directory, so it ends with its holder, however that dies.
A flock belongs to the open file description: a fork of the holder's process would keep
it.  Python's own forks close it in the child; programs that are executed never have it.
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
    """The lock of the run in the directory *path*; not held to begin with."""

    def __init__(self, path: Path) -> None:
        self.path: Final = path
        self._fd = -1
        _locks.add(self)

    def __repr__(self) -> str:
        return f"<RunLock {self.path.name}: {'held by us' if self.held else 'not ours'}>"

    @property
    def held(self) -> bool:
        """Whether we hold it."""
        return self._fd >= 0

    def take(self) -> bool:
        """Take it if nobody holds it; whether we hold it now.

        Raises:
            StateDirectoryError: the directory cannot be opened or locked at all.
        """
        if self.held:
            return True
        fd = self._open()
        try:
            while not _flock(fd, fcntl.LOCK_EX):
                # Whoever only looks has a shared lock for a moment.  That is no holder.
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
        """Take it as soon as its holder lets go; whether we hold it now."""
        if self.take():
            return True
        fd = self._open()
        decided = threading.Lock()
        outcome: list[bool] = []  # the first entry: True taken, False too late

        def wait() -> None:
            taken = False
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX)
                taken = True
            with decided:
                outcome.append(taken)
            if outcome[0] is False:
                os.close(fd)

        # flock(2) knows no time limit, so a thread waits, and gives it back if it comes late.
        waiter = threading.Thread(target=wait, name="agentctl run lock", daemon=True)
        try:
            waiter.start()
        except RuntimeError:  # none is to be had: some run has used them up
            os.close(fd)
            return self._take_within(timeout_s)
        waiter.join(timeout_s)
        with decided:
            outcome.append(False)
        if outcome[0]:
            self._fd = fd
        return self.held

    def _take_within(self, timeout_s: float) -> bool:
        """Try again and again, where there is no thread to wait for it."""
        deadline = time.monotonic() + timeout_s
        while not self.take() and time.monotonic() < deadline:
            time.sleep(_TRY_EVERY_S)
        return self.held

    def wait_until_free(self) -> None:
        """Return once nobody holds it.  Blocks, for as long as that takes.

        Raises:
            StateDirectoryError: the directory cannot be opened.
        """
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
        finally:
            os.close(fd)

    def release(self) -> None:
        """Give it back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def is_held(self) -> bool:
        """Whether somebody alive, perhaps we, holds it.

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
        """Close it in a forked child; our parent still holds it.  Never LOCK_UN: that is shared."""
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
