"""Read a file of the caller's that lies outside the view: not there, or refused."""

import os

from attempt import FACTS, attempt

SECRET = FACTS["secret"]


def read() -> str:
    with open(SECRET) as file:
        return file.read()


def read_beneath_its_directory() -> str:
    directory = os.open(os.path.dirname(SECRET), os.O_PATH | os.O_DIRECTORY)
    descriptor = os.open(os.path.basename(SECRET), os.O_RDONLY, dir_fd=directory)
    return os.read(descriptor, 4096).decode()


def walk_up_from_the_workspace() -> str:
    with open(os.path.relpath(SECRET, FACTS["workspace"])) as file:
        return file.read()


def list_its_directory() -> str:
    return " ".join(os.listdir(os.path.dirname(SECRET)))


attempt(
    {
        "open": read,
        "openat": read_beneath_its_directory,
        "relative": walk_up_from_the_workspace,
        "listdir": list_its_directory,
    }
)
