"""Follow a path link by link."""

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_MOST_LINKS: Final = 40
"""The kernel's own limit: path_resolution(7)."""
_SHOWN: Final = 120


@dataclass(frozen=True)
class Followed:
    """A path without links, and the links that led there.

    ``links``: pairs of the path of a link and its target text.  No component above the path of a
    link is a link itself, so the links can be made in any order.
    """

    real: str
    links: tuple[tuple[str, str], ...] = ()


def follow(path: str) -> Followed:
    """Follow every link of the absolute *path*.

    Raises:
        OSError: a component does not exist or is not a directory, or there are too many links.
    """
    followed, stopped = follow_there(path)
    if stopped is not None:
        raise stopped
    return followed


def follow_there(path: str, known: dict[str, str] | None = None) -> tuple[Followed, OSError | None]:
    """Follow the absolute *path* as far as possible, and return the error that stopped it, if any.

    *known*: the target texts of paths that were read earlier, "" for a path that is not a link.
    This function adds to it.
    """
    known = {} if known is None else known
    left = _words(path)
    real = "/"
    links: dict[str, str] = {}
    followed = 0
    while left:
        word = left.pop()
        if word == "..":
            real = os.path.dirname(real)
            continue
        at = os.path.join(real, word)
        if at not in known:
            try:
                known[at] = os.readlink(at)
            except OSError as error:
                if error.errno != errno.EINVAL:  # EINVAL: the path exists and is not a link
                    return Followed(real, tuple(links.items())), error
                known[at] = ""
        if not (target := known[at]):
            real = at
            continue
        followed += 1
        if followed > _MOST_LINKS:
            loop = OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            return Followed(real, tuple(links.items())), loop
        links[at] = target
        if target.startswith("/"):
            real = "/"
        left += _words(target)
    return Followed(real, tuple(links.items())), None


def _words(path: str) -> list[str]:
    """Return the components of *path*, the last one first."""
    return [word for word in reversed(path.split("/")) if word not in ("", ".")]


def is_beneath(path: str, directory: str) -> bool:
    """Return whether *path* is *directory* or lies beneath it.  Both are real paths."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def lies_inside(path: str, directory: str) -> bool:
    """Return whether *path* lies beneath *directory* and is not *directory* itself."""
    return path != directory and is_beneath(path, directory)


def leads_out(followed: Followed, directories: Iterable[str]) -> bool:
    """Return whether a link in one of *directories* leads out of all of them.

    A link in a directory that runs can write to may be made by a run, so it does not show what
    the caller wants.
    """
    inside = tuple(directories)
    if any(is_beneath(followed.real, directory) for directory in inside):
        return False
    return any(is_beneath(place, d) for place, _ in followed.links for d in inside)


def cut_short(path: str) -> str:
    """Shorten *path* for a message, so that the message stays readable."""
    return path if len(path) <= _SHOWN else path[:_SHOWN] + "..."
