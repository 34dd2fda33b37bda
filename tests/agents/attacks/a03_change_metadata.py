"""Change mode, owner, times, attributes of a file outside: refused (Landlock alone allows it)."""

import os

from attempt import FACTS, attempt, only_root

VICTIM = FACTS["victim"]


def chmod() -> None:
    os.chmod(VICTIM, 0o606)


def chmod_beneath() -> None:
    directory = os.open(FACTS["outside"], os.O_PATH | os.O_DIRECTORY)
    os.chmod("victim", 0o660, dir_fd=directory)


def chmod_by_descriptor() -> None:
    descriptor = os.open(VICTIM, os.O_PATH)
    os.chmod(f"/proc/self/fd/{descriptor}", 0o666)


def chown() -> None:
    only_root()
    os.chown(VICTIM, 1, 1)
    os.chown(VICTIM, 0, 0)


def own_group() -> None:
    # Anybody may give his file to a group that he is in.
    os.chown(VICTIM, -1, os.getgid())


attempt(
    {
        "chmod": chmod,
        "fchmodat": chmod_beneath,
        "chmod of a descriptor": chmod_by_descriptor,
        "chown": chown,
        "chgrp": own_group,
        "utime": lambda: os.utime(VICTIM, (1, 1)),
        "touch": lambda: os.utime(VICTIM),
        "setxattr": lambda: os.setxattr(VICTIM, "user.attack", b"was here"),
        "chmod of the directory": lambda: os.chmod(FACTS["outside"], 0o777),
    }
)
