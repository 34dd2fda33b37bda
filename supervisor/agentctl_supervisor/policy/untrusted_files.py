"""Reads what a run may have made, where what is in it, or that it is there, decides a protection.

One contract for all of it: what is not there is told as that, and whatever else keeps us from
knowing refuses the run, for it could say anything.  A run can bring that about for the next
one: it takes away the right to search a directory, makes a name too long or puts a FIFO in
its place; and somebody else can hold a lease (fcntl(2), F_SETLEASE).  Nothing here waits:
with O_NONBLOCK, open(2) of a FIFO returns at once, and that of a file with a lease fails.
"""

import errno
import os
import shlex
import stat
from collections.abc import Iterator
from typing import Final, NamedTuple

from agentctl_supervisor.errors import SandboxUnavailableError, in_words
from agentctl_supervisor.policy.links import cut_short

_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MISSING: Final = frozenset({errno.ENOENT, errno.ENOTDIR})


class UnreadableError(SandboxUnavailableError):
    """What decides a protection cannot be known.  ``number``: the errno, or 0."""

    def __init__(self, path: str, why: str, hint: str = "", number: int = 0) -> None:
        super().__init__(
            f"what a run may not change cannot be known: {cut_short(path)}: {why}",
            hint or f"a run may have made it so; look: namei -l {shlex.quote(cut_short(path))}",
        )
        self.number = number


class Entry(NamedTuple):
    """What is in a directory.  A link to a directory is a link."""

    name: str
    is_link: bool
    is_directory: bool


def is_missing(error: OSError) -> bool:
    """Whether *error* says that there is nothing, and no more than that."""
    return error.errno in _MISSING


def unreadable(path: str, error: OSError) -> UnreadableError:
    """*error*, which is not one of `is_missing`, met at *path*."""
    return UnreadableError(path, in_words(error), number=error.errno or 0)


def status(path: str, *, follow: bool = False) -> os.stat_result | None:
    """What stat(2) says of *path*; None if it is not there.

    Raises:
        UnreadableError: that cannot be known.
    """
    try:
        return os.stat(path, follow_symlinks=follow)
    except OSError as error:
        if is_missing(error):
            return None
        raise unreadable(path, error) from None


def is_there(path: str, *, follow: bool = False) -> bool:
    """Whether there is something at *path*.

    Raises:
        UnreadableError: that cannot be known.
    """
    return status(path, follow=follow) is not None


def is_directory(path: str) -> bool:
    """Whether *path* leads to a directory.

    Raises:
        UnreadableError: that cannot be known.
    """
    found = status(path, follow=True)
    return found is not None and stat.S_ISDIR(found.st_mode)


def beginning(path: str, most: int) -> bytes | None:
    """The first *most* bytes of the regular file *path*; None if it is not there.

    Raises:
        UnreadableError: it cannot be read, or is something else.
    """
    try:
        fd = os.open(path, _FLAGS)
    except OSError as error:
        if is_missing(error):
            return None
        raise unreadable(path, error) from None
    try:
        # Of the very file that is then read.
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise UnreadableError(path, "it is not a file")
        with open(fd, "rb", closefd=False) as file:
            return file.read(most)
    except OSError as error:
        raise unreadable(path, error) from None
    finally:
        os.close(fd)


def whole(path: str, most: int) -> bytes | None:
    """All of the regular file *path*; None if it is not there.

    Raises:
        UnreadableError: it cannot be read, is something else, or longer than *most* bytes.
    """
    data = beginning(path, most + 1)
    if data is not None and len(data) > most:
        raise UnreadableError(path, f"it is longer than {most >> 10} KiB")
    return data


def entries(directory: str) -> Iterator[Entry]:
    """What is in *directory*, one by one: there may be millions; nothing if it is not there.

    Raises:
        UnreadableError: it cannot be listed.
    """
    try:
        with os.scandir(directory) as found:
            for entry in found:
                is_link = entry.is_symlink()
                yield Entry(entry.name, is_link, not is_link and entry.is_dir())
    except OSError as error:
        if not is_missing(error):
            raise unreadable(directory, error) from None
