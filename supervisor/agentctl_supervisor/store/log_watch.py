"""Waits for a run's log to grow, without polling."""

import contextlib
import ctypes
import os
import select
import time
from collections.abc import Callable
from typing import Final, Self, TypeVar

_T = TypeVar("_T")

# inotify(7); the standard library has no binding.
_IN_MODIFY: Final = 0x2
_IN_CREATE: Final = 0x100
_IN_MOVED_TO: Final = 0x80


class LogWatch:
    """An inotify watch of directories: readable as soon as a log in one of them has grown.

    With *new_files*, it becomes readable only when there is a new file.  A context manager.

    Raises:
        OSError: inotify has no instance left; their number is limited for each user.
    """

    def __init__(self, *paths: str | os.PathLike[str], new_files: bool = False) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd: int = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        changes = _IN_CREATE | _IN_MOVED_TO | (0 if new_files else _IN_MODIFY)
        for path in paths:
            if libc.inotify_add_watch(self._fd, os.fsencode(path), changes) < 0:
                error = ctypes.get_errno()
                self.close()
                raise OSError(error, os.strerror(error))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._fd

    def clear(self) -> None:
        """Discard the changes reported so far."""
        try:
            os.read(self._fd, 1 << 16)
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)


def wait_for(path: str, look: Callable[[], _T | None], timeout_s: float) -> _T | None:
    """Wait until *look* finds something in the directory *path*, at most *timeout_s* seconds.

    *look* is called now and after each change; the result is what it found, or None.  Without
    inotify (its instances are limited for each user), *look* is called once more at the end.
    """
    deadline = time.monotonic() + timeout_s
    changed = select.poll()
    with contextlib.ExitStack() as stack:
        watch: LogWatch | None = None
        with contextlib.suppress(OSError):
            watch = stack.enter_context(LogWatch(path))
            changed.register(watch, select.POLLIN)
        # The first look comes after the watch, so that no change between the two is missed.
        found = look()
        while found is None and (left_s := deadline - time.monotonic()) > 0:
            if changed.poll(left_s * 1000) and watch is not None:
                watch.clear()
            found = look()
        return found
