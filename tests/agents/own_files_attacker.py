"""Tries to change each file that it is given: in place, beside it, by moving it or what it is in.

Prints one JSON object: what was tried, and "done" or the errno.  What was moved is moved back.
"""

import errno
import json
import os
import sys
from collections.abc import Callable


def append(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_APPEND))


def chmod(path: str) -> None:
    os.chmod(path, os.stat(path).st_mode & 0o777)


def create_beside(path: str) -> None:
    made = f"{os.path.dirname(path)}/made-by-attack"
    os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
    os.unlink(made)


def move(path: str) -> None:
    os.rename(path, f"{path}-moved")
    os.rename(f"{path}-moved", path)


def link(path: str) -> None:
    """A second name, by which it could be written to."""
    os.link(path, f"{path}-linked")
    os.unlink(f"{path}-linked")


ATTEMPTS: dict[str, Callable[[str], None]] = {
    "append": append,
    "chmod": chmod,
    "create beside": create_beside,
    "move": move,
    "link": link,
    "move its directory": lambda path: move(os.path.dirname(path)),
}


def outcome(act: Callable[[str], None], path: str) -> str:
    try:
        act(path)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, str(error))
    return "done"


if __name__ == "__main__":
    said = {
        f"{name} {path}": outcome(act, path)
        for path in json.loads(sys.argv[1])
        for name, act in ATTEMPTS.items()
    }
    print(json.dumps(said))
