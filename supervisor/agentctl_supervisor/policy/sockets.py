"""Find sockets of services in the directories that a run is given, when the run starts.

A network namespace does not protect them: a UNIX socket with a path is found by its file.  A
read-only mount does not prevent connecting (unix(7); MAY_WRITE is checked for the file only).
Landlock has a right for it since Linux 7.1.  Before that, a covered socket is out of reach.
"""

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from agentctl_protocol.shell_words import shell_word
from agentctl_protocol.spec import SpecError
from agentctl_protocol.vocabulary import Sandbox

WHY: Final = "the socket of a service"

_BOUND: Final = "/proc/net/unix"
_BOUND_BYTES: Final = 1 << 20
_NAME: Final = re.compile(rb"^[0-9a-fA-F]++: (?:\S++ ++){6}([^@\n].*)$", re.MULTILINE)
_RELATIVE: Final = 256
_ENTRIES: Final = 4096
"""The most entries of a directory that are examined; `_RELATIVE` is the most names of bound sockets
that do not begin with a slash."""


def found(given: Collection[str], around: Iterable[str]) -> list[str]:
    """Return the paths of sockets in the directories *given*, and in *around*, the rest of a view.

    The kernel lists the sockets that are bound in our network namespace.  A service may bind a
    name relative to its own directory.  Such a name is looked for in each of *given*, and its last
    component at the top of each.  Socket files of services that have ended are left out, because a
    run may want to make its own socket there.
    """
    names = _bound()
    inside = tuple(f"{directory.rstrip('/')}/" for directory in {*given, *around})
    paths = {name: None for name in names if name.startswith(inside)}
    relative = [name for name in names if name[0] != "/"][:_RELATIVE]
    ends = {name.rpartition("/")[2] for name in names}
    for directory in given:
        for name in relative:
            path = os.path.normpath(os.path.join(directory, name))
            if path.startswith(f"{directory.rstrip('/')}/"):
                paths[path] = None
        paths.update(dict.fromkeys(_at_the_top(directory, ends)))
    return [path for path in paths if is_socket(path)]


def refuse_unusable(level: Sandbox, option: str, real: str, shown: str, *, writable: bool) -> None:
    """Refuse *real*, named by *option* and shown as *shown*, if a run could not use it as a socket.

    Raises:
        SpecError: *real* is no socket, or the run could not use it, or could not be kept from it.
    """
    if not is_socket(real):
        raise SpecError(
            f"{option} {shown} is neither a file nor a directory nor a socket",
            "a run has devices of its own; name a file",
        )
    if not writable:
        raise SpecError(
            f"{option} {shown} is a socket, and nobody only reads one: whoever sees it can"
            " have its service act",
            f"if that is meant: --rw {shell_word(real)}",
        )
    if level is Sandbox.STANDARD:
        raise SpecError(
            f"{option} {shown} is a socket, and at standard a run has none but its own pairs",
            "--sandbox strict",
        )


def _bound() -> list[str]:
    """Return the names of bound sockets, as they were bound, without abstract ones."""
    try:
        with open(_BOUND, "rb") as file:
            return [_straight(os.fsdecode(name)) for name in _NAME.findall(file.read(_BOUND_BYTES))]
    except OSError:
        return []


def _straight(name: str) -> str:
    return os.path.normpath(name) if "//" in name or "/." in name else name


def _at_the_top(directory: str, ends: Collection[str]) -> Iterator[str]:
    try:
        with os.scandir(directory) as entries:
            for entry in islice(entries, _ENTRIES):
                if entry.name in ends:
                    yield entry.path
    except OSError:
        return


def is_socket(path: str) -> bool:
    """Return whether *path* itself, with no link followed, is a socket."""
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False
