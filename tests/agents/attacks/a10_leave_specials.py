"""Leave links, sparse files, odd names for the host to collect: it follows and opens none."""

import os

from attempt import FACTS, attempt

WORKSPACE = FACTS["workspace"]


def path(name: str) -> str:
    return f"{WORKSPACE}/{name}"


def sparse() -> None:
    with open(path("sparse"), "w") as file:
        file.truncate(1 << 40)


def odd_names() -> None:
    for name in (b"\xff\xfe", b"a\nb", b"\x1b[31m", b"-rf", b"x" * 255):
        os.close(os.open(WORKSPACE.encode() + b"/" + name, os.O_WRONLY | os.O_CREAT))


def deep() -> None:
    os.chdir(WORKSPACE)
    for _ in range(300):
        os.mkdir("d" * 100)
        os.chdir("d" * 100)


attempt(
    {
        "symlink": lambda: os.symlink(FACTS["secret"], path("link")),
        "symlink to a directory": lambda: os.symlink(FACTS["outside"], path("directory-link")),
        "symlink loop": lambda: os.symlink("loop", path("loop")),
        "sparse file": sparse,
        "names that are no text": odd_names,
        "a path longer than PATH_MAX": deep,
    }
)
