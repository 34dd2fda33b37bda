"""Read files that a run may have made and that decide a protection.

All functions follow one contract.  They report that a file does not exist.  Every other error
refuses the new run, because the content is unknown.  An earlier run can cause such an error: it
removes the search permission of a directory, makes a name too long, or replaces a file by a FIFO.
Another process can hold a lease (fcntl(2), F_SETLEASE).  No function here blocks: with O_NONBLOCK,
open(2) of a FIFO returns at once, and open(2) of a file with a lease fails.
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
    """A path that decides a protection cannot be examined.  ``number``: the errno, or 0."""

    def __init__(self, path: str, why: str, hint: str = "", number: int = 0) -> None:
        super().__init__(
            f"what a run may not change cannot be known: {cut_short(path)}: {why}",
            hint or f"a run may have made it so; look: namei -l {shlex.quote(cut_short(path))}",
        )
        self.number = number


class Entry(NamedTuple):
    """An entry of a directory.  For a link to a directory, ``is_directory`` is False."""

    name: str
    is_link: bool
    is_directory: bool


def is_missing(error: OSError) -> bool:
    """Return whether *error* says only that the file does not exist."""
    return error.errno in _MISSING


def unreadable(path: str, error: OSError) -> UnreadableError:
    """Convert *error*, which is not `is_missing`, at *path* into an `UnreadableError`."""
    return UnreadableError(path, in_words(error), number=error.errno or 0)


def status(path: str, *, follow: bool = False) -> os.stat_result | None:
    """Return the result of stat(2) for *path*; None if it does not exist.

    Raises:
        UnreadableError: stat(2) fails with any other error.
    """
    try:
        return os.stat(path, follow_symlinks=follow)
    except OSError as error:
        if is_missing(error):
            return None
        raise unreadable(path, error) from None


def is_there(path: str, *, follow: bool = False) -> bool:
    """Return whether *path* exists.

    Raises:
        UnreadableError: stat(2) fails with any other error.
    """
    return status(path, follow=follow) is not None


def is_directory(path: str) -> bool:
    """Return whether *path* leads to a directory.

    Raises:
        UnreadableError: stat(2) fails with an error other than "does not exist".
    """
    found = status(path, follow=True)
    return found is not None and stat.S_ISDIR(found.st_mode)


def beginning(path: str, most: int) -> bytes | None:
    """Return the first *most* bytes of the regular file *path*; None if it does not exist.

    Raises:
        UnreadableError: it cannot be read, or is not a regular file.
    """
    try:
        fd = os.open(path, _FLAGS)
    except OSError as error:
        if is_missing(error):
            return None
        raise unreadable(path, error) from None
    try:
        # fstat(2) asks about the same file that is read afterwards.
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise UnreadableError(path, "it is not a file")
        with open(fd, "rb", closefd=False) as file:
            return file.read(most)
    except OSError as error:
        raise unreadable(path, error) from None
    finally:
        os.close(fd)


def whole(path: str, most: int) -> bytes | None:
    """Return the content of the regular file *path*; None if it does not exist.

    Raises:
        UnreadableError: it cannot be read, is not a regular file, or is longer than *most* bytes.
    """
    data = beginning(path, most + 1)
    if data is not None and len(data) > most:
        raise UnreadableError(path, f"it is longer than {most >> 10} KiB")
    return data


def entries(directory: str) -> Iterator[Entry]:
    """Yield the entries of *directory* one by one, since there may be millions.

    Yield nothing if the directory does not exist.

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
