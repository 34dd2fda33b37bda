"""Remove a directory tree that a run could write to, whatever the run made in it.

Directories are moved to the top of the tree before they are emptied, so that nesting costs neither
descriptors nor path length.  No link is followed.  Modes that forbid the removal are changed if
that is permitted.  The time is bounded, and the rest can be removed later.
"""

import contextlib
import errno
import os
import stat
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agentctl_supervisor.filesystem.open_beneath import HANDLE, READ

_CHECK_CLOCK_EVERY: Final = 64


def remove_tree(path: Path, seconds: float) -> bool:
    """Remove the file or tree *path*; return whether it is gone.

    Blocks for at most about *seconds*.  No run may be able to write to the directory that *path* is
    in.
    """
    try:
        parent = os.open(path.parent, READ | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    try:
        if not _unlinked(parent, path.name):
            with _opened(parent, path.name) as top:
                _Removal(top, time.monotonic() + seconds).run()
            os.rmdir(path.name, dir_fd=parent)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    finally:
        os.close(parent)
    return True


class _Removal:
    """The removal of everything in the directory *top*."""

    def __init__(self, top: int, deadline: float) -> None:
        self._top = top
        self._deadline = deadline
        self._steps = 0
        self._pending: deque[str] = deque()

    def run(self) -> None:
        """Empty the directory.

        Raises:
            OSError: time is up, or an entry cannot be removed.
        """
        # A directory that changes while it is read may hide an entry, so repeat until none is
        # found.
        while self._empty(self._top):
            while self._pending:
                self._remove(self._pending.popleft())

    def _remove(self, name: str) -> None:
        try:
            with _opened(self._top, name) as fd:
                while self._empty(fd):
                    pass
        except FileNotFoundError:
            return
        os.rmdir(name, dir_fd=self._top)

    def _empty(self, fd: int) -> bool:
        """Remove or move away the entries of *fd*; return whether there were any.

        Directories in the top become pending.  Directories further down are moved to the top.
        """
        any_found = False
        with os.scandir(fd) as entries:
            for entry in entries:
                any_found = True
                self._steps += 1
                if self._steps % _CHECK_CLOCK_EVERY == 0 and time.monotonic() > self._deadline:
                    raise TimeoutError
                if _unlinked(fd, entry.name):
                    continue
                if fd == self._top:
                    self._pending.append(entry.name)
                else:
                    self._bring_up(fd, entry.name)
        return any_found

    def _bring_up(self, fd: int, name: str) -> None:
        # A directory must be writable itself to be moved to another parent.
        with _opened(fd, name):
            pass
        while True:
            self._steps += 1
            fresh = f".going-{self._steps}"
            try:
                os.rename(name, fresh, src_dir_fd=fd, dst_dir_fd=self._top)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
            else:
                break
        self._pending.append(fresh)


def _unlinked(directory: int, name: str) -> bool:
    """Unlink *name*; return whether it is gone.  A directory stays."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return True
    except IsADirectoryError:
        return False
    return True


@contextlib.contextmanager
def _opened(directory: int, name: str) -> Iterator[int]:
    """Open the directory *name* in *directory*, and give its owner all permissions."""
    handle = os.open(name, HANDLE | os.O_DIRECTORY, dir_fd=directory)
    try:
        mode = os.fstat(handle).st_mode
        if mode & stat.S_IRWXU != stat.S_IRWXU:
            # Through /proc, since fchmod(2) does not accept an O_PATH descriptor.
            os.chmod(f"/proc/self/fd/{handle}", stat.S_IRWXU)
        fd = os.open(".", READ | os.O_DIRECTORY, dir_fd=handle)
    finally:
        os.close(handle)
    try:
        yield fd
    finally:
        os.close(fd)
