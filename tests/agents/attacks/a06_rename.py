"""Rename files across the workspace's boundary, and the workspace itself: refused."""

import os

from attempt import FACTS, attempt, checked, libc

WORKSPACE = FACTS["workspace"]
OUTSIDE = FACTS["outside"]
VICTIM = FACTS["victim"]
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def mine(name: str) -> str:
    path = f"{WORKSPACE}/{name}"
    with open(path, "w") as file:
        file.write("was here\n")
    return path


def inwards() -> str:
    os.rename(FACTS["secret"], f"{WORKSPACE}/fetched")
    with open(f"{WORKSPACE}/fetched") as file:
        text = file.read()
    os.rename(f"{WORKSPACE}/fetched", FACTS["secret"])
    return text


def exchange() -> None:
    one, other = mine("exchanged").encode(), VICTIM.encode()
    checked(libc.renameat2(_AT_FDCWD, one, _AT_FDCWD, other, _RENAME_EXCHANGE))


def away() -> None:
    os.rename(WORKSPACE, f"{OUTSIDE}/moved")
    os.rename(f"{OUTSIDE}/moved", WORKSPACE)


attempt(
    {
        "in": inwards,
        "out": lambda: os.rename(mine("sent"), f"{OUTSIDE}/sent"),
        "over": lambda: os.rename(mine("replacing"), VICTIM),
        "exchange": exchange,
        "the workspace": away,
    }
)
