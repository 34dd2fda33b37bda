"""Bring a file outside into the workspace by a hard link: refused."""

import ctypes
import errno
import os

from attempt import FACTS, attempt, checked, libc, link_descriptor, may_lack

WORKSPACE = FACTS["workspace"]
SECRET = FACTS["secret"]
_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000


def linked(name: str) -> str:
    with open(f"{WORKSPACE}/{name}") as file:
        return file.read()


def by_path() -> str:
    os.link(SECRET, f"{WORKSPACE}/by-path")
    return linked("by-path")


def by_descriptor() -> str:
    descriptor = os.open(SECRET, os.O_PATH)
    link_descriptor(descriptor, f"{WORKSPACE}/by-descriptor")
    return linked("by-descriptor")


def by_empty_path() -> str:
    descriptor = os.open(SECRET, os.O_PATH)
    name = f"{WORKSPACE}/by-empty-path".encode()
    # Since 6.10 without CAP_DAC_READ_SEARCH, for whoever opened it.
    with may_lack("linkat of a descriptor for this user", errno.ENOENT):
        checked(libc.linkat(descriptor, b"", _AT_FDCWD, ctypes.c_char_p(name), _AT_EMPTY_PATH))
    return linked("by-empty-path")


def out_of_it() -> None:
    with open(f"{WORKSPACE}/mine", "w") as file:
        file.write("was here\n")
    os.link(f"{WORKSPACE}/mine", f"{FACTS['outside']}/mine")


attempt(
    {
        "link": by_path,
        "link of a descriptor": by_descriptor,
        "AT_EMPTY_PATH": by_empty_path,
        "out of the workspace": out_of_it,
    }
)
