"""Make a symlink in the workspace that leads outside, and go through it: it leads nowhere."""

import os

from attempt import FACTS, attempt

WORKSPACE = FACTS["workspace"]


def read(target: str, below: str = "") -> str:
    link = f"{WORKSPACE}/link"
    if os.path.lexists(link):
        os.unlink(link)
    os.symlink(target, link)
    with open(f"{link}{below}") as file:
        return file.read()


def create() -> None:
    os.symlink(f"{FACTS['outside']}/made", f"{WORKSPACE}/dangling")
    with open(f"{WORKSPACE}/dangling", "w") as file:
        file.write("was here\n")


def chain() -> str:
    os.symlink("../../../../../../../../../../..", f"{WORKSPACE}/up")
    os.symlink(f"up{FACTS['secret']}", f"{WORKSPACE}/chain")
    with open(f"{WORKSPACE}/chain") as file:
        return file.read()


attempt(
    {
        "to the file": lambda: read(FACTS["secret"]),
        "to its directory": lambda: read(FACTS["outside"], "/secret"),
        "relative": lambda: read("../outside/secret"),
        "to the root": lambda: read("/", FACTS["secret"]),
        "a chain": chain,
        "dangling, then created": create,
    }
)
