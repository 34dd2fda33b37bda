"""Look at names, sizes and times of a file outside: not there."""

import os

from attempt import FACTS, Blocked, attempt

SECRET = FACTS["secret"]


def access() -> None:
    if not os.access(SECRET, os.F_OK):
        raise Blocked("not there")


def enter() -> None:
    os.chdir(FACTS["outside"])


def size() -> int:
    return os.stat(SECRET).st_size


def pin() -> None:
    os.open(SECRET, os.O_PATH)


attempt(
    {
        "stat": size,
        "access": access,
        "O_PATH": pin,
        "chdir": enter,
        "listxattr": lambda: os.listxattr(SECRET),
        "statvfs": lambda: os.statvfs(FACTS["outside"]).f_files,
    }
)
