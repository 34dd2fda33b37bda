"""Overwrite what the next run, or the host, will execute: launcher, interpreter, library.

Refused: CVE-2019-5736 was a container that wrote to the program which had started it, found
by /proc/self/exe.
"""

import errno
import os
import sys
import tempfile
from collections.abc import Callable

from attempt import FACTS, Blocked, attempt, only_root

_LIBRARY = os.path.realpath(os.__file__)
_INTERPRETER = os.path.realpath(sys.executable)
_KEEPER = os.getppid()  # here, as a variant is a child of ours
_ITSELF = os.path.realpath(__file__)


def _written_again(path: str) -> str:
    """Its first byte is written over with itself, and it looks as old as it was."""
    before = os.stat(path)
    with open(path, "r+b", buffering=0) as file:
        first = file.read(1)
        file.seek(0)
        file.write(first)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return f"wrote to {path}"


def _write(path: str, root: bool) -> Callable[[], str]:
    def write() -> str:
        if root:
            only_root()
        return _written_again(path)

    return write


def _beside(path: str, root: bool) -> Callable[[], str]:
    """A new file in its directory: what is imported first, or found first."""

    def beside() -> str:
        if root:
            only_root()
        with tempfile.NamedTemporaryFile(dir=os.path.dirname(path), prefix=".attack-") as file:
            return f"made {file.name}"

    return beside


def _mode(path: str, root: bool) -> Callable[[], str]:
    """Its mode set to what it is, by a call that Landlock knows nothing of."""

    def mode() -> str:
        if root:
            only_root()
        os.chmod(path, os.stat(path).st_mode & 0o7777)
        return f"set the mode of {path}"

    return mode


def by_descriptor() -> str:
    """The trick of the CVE: keep hold of a file that nobody can write to while it runs."""
    held = os.open(FACTS["launcher"], os.O_PATH)
    return _written_again(f"/proc/self/fd/{held}")


def keepers_program() -> str:
    """The program of the process that started us, by its name in /proc."""
    if FACTS["level"] == "outside":
        return _written_again(FACTS["launcher"])
    path = f"/proc/{_KEEPER}/exe"
    target = os.readlink(path)
    try:
        with open(path, "r+b", buffering=0) as file:
            return f"may write to {target}, {file.fileno()}"
    except OSError as error:
        if error.errno != errno.ETXTBSY:
            raise
        raise Blocked(f"ETXTBSY for {target}") from None


attempt(
    {
        "exe_by_descriptor": by_descriptor,
        "keeper": keepers_program,
        "library": _write(_LIBRARY, True),
        "beside_library": _beside(_LIBRARY, True),
        "beside_interpreter": _beside(_INTERPRETER, True),
        "mode_of_interpreter": _mode(_INTERPRETER, True),
        "itself": _write(_ITSELF, True),
        "beside_itself": _beside(_ITSELF, True),
        "mode_of_itself": _mode(_ITSELF, True),
    }
)
