"""Waits for a run's log to grow, without looking at it again and again."""

import ctypes
import os
import select
import time
from collections.abc import Callable
from typing import Final, TypeVar

_T = TypeVar("_T")

# inotify(7); the standard library has no binding.
_IN_MODIFY: Final = 0x2
_IN_CREATE: Final = 0x100
_IN_MOVED_TO: Final = 0x80


def wait_for(path: str, look: Callable[[], _T | None], timeout_s: float) -> _T | None:
    """What *look* finds in the directory *path*, now or after a change within *timeout_s* seconds.

    Without inotify (its instances are limited for each user) it looks once more, at the end.
    """
    deadline = time.monotonic() + timeout_s
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if watch >= 0:
            libc.inotify_add_watch(watch, os.fsencode(path), _IN_MODIFY | _IN_CREATE | _IN_MOVED_TO)
        # Looking comes after the watch: a change in between is not missed.
        found = look()
        changed = select.poll()
        if watch >= 0:
            changed.register(watch, select.POLLIN)
        while found is None and (left_s := deadline - time.monotonic()) > 0:
            if changed.poll(left_s * 1000):
                os.read(watch, 1 << 16)
            found = look()
        return found
    finally:
        if watch >= 0:
            os.close(watch)
