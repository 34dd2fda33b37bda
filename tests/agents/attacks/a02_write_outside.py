"""Create, change and remove files outside the workspace: refused, and all is as it was."""

import os
import secrets

from attempt import FACTS, attempt, link_descriptor, only_root

OUTSIDE = FACTS["outside"]
VICTIM = FACTS["victim"]
UNIQUE = f"agentctl-attack-{secrets.token_hex(6)}"


def write(path: str, flags: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | flags, 0o644)
    os.write(descriptor, b"was here\n")
    os.close(descriptor)


def nameless() -> None:
    directory = os.open(OUTSIDE, os.O_WRONLY | os.O_TMPFILE, 0o600)
    link_descriptor(directory, f"{OUTSIDE}/nameless")


def fifo() -> None:
    os.mkfifo(f"{OUTSIDE}/fifo")


def in_system_directory(directory: str) -> None:
    only_root()
    write(f"{directory}/{UNIQUE}", os.O_CREAT)
    os.unlink(f"{directory}/{UNIQUE}")


def remove() -> None:
    os.unlink(VICTIM)


attempt(
    {
        "create": lambda: write(f"{OUTSIDE}/created", os.O_CREAT | os.O_EXCL),
        "append": lambda: write(VICTIM, os.O_APPEND),
        "truncate": lambda: os.truncate(VICTIM, 3),
        "O_TRUNC": lambda: write(VICTIM, os.O_TRUNC),
        "mkdir": lambda: os.mkdir(f"{OUTSIDE}/directory"),
        "symlink": lambda: os.symlink("/", f"{OUTSIDE}/link"),
        "mkfifo": fifo,
        "O_TMPFILE": nameless,
        "/usr/lib": lambda: in_system_directory("/usr/lib"),
        "/etc": lambda: in_system_directory("/etc"),
        "/dev": lambda: in_system_directory("/dev"),
        "unlink": remove,
    }
)
