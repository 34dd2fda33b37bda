"""Watch a directory outside by inotify or fanotify: refused."""

import ctypes
import os

from attempt import FACTS, attempt, checked, libc, only_root

OUTSIDE = FACTS["outside"].encode()
_IN_ALL = 0xFFF
_FAN_CLASS_NOTIF = 0
_FAN_REPORT_DFID_NAME = 0xC00
_FAN_MARK_ADD = 1
_FAN_MARK_FILESYSTEM = 0x100
_FAN_CREATE = 0x100
_AT_FDCWD = -100


def inotify() -> None:
    watch = checked(libc.inotify_init())
    checked(libc.inotify_add_watch(watch, OUTSIDE, _IN_ALL))


def fanotify(what: int, where: bytes) -> None:
    # Anybody may watch a single directory since 5.13, with file handles instead of descriptors.
    group = checked(libc.fanotify_init(_FAN_CLASS_NOTIF | _FAN_REPORT_DFID_NAME, os.O_RDONLY))
    mask = ctypes.c_uint64(_FAN_CREATE)
    checked(libc.fanotify_mark(group, _FAN_MARK_ADD | what, mask, _AT_FDCWD, where))


def whole_file_system() -> None:
    only_root()
    fanotify(_FAN_MARK_FILESYSTEM, FACTS["workspace"].encode())


attempt(
    {
        "inotify": inotify,
        "fanotify": lambda: fanotify(0, OUTSIDE),
        "fanotify of the file system": whole_file_system,
    }
)
