"""Where a path leads, link by link."""

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_MOST_LINKS: Final = 40
"""As many as the kernel follows: path_resolution(7)."""
_SHOWN: Final = 120


@dataclass(frozen=True)
class Followed:
    """A path without a link in it, and the links that led there: their places, and their texts.

    A place has no link above itself, so that the links can be made in any order.
    """

    real: str
    links: tuple[tuple[str, str], ...] = ()


def follow(path: str) -> Followed:
    """Follow every link of the absolute *path*.

    Raises:
        OSError: something on the way is not there, is no directory, or links to itself.
    """
    followed, stopped = follow_there(path)
    if stopped is not None:
        raise stopped
    return followed


def follow_there(path: str, known: dict[str, str] | None = None) -> tuple[Followed, OSError | None]:
    """Follow the absolute *path* as far as it leads, and say what stopped it before its end.

    *known*: what the links said that were read already, "" for what is none; it is added to.
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
                if error.errno != errno.EINVAL:  # which is said of what is there, and no link
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
    """The names in *path*, the last one first."""
    return [word for word in reversed(path.split("/")) if word not in ("", ".")]


def is_beneath(path: str, directory: str) -> bool:
    """Whether *path* is *directory* or lies beneath it.  Both are real paths."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def lies_inside(path: str, directory: str) -> bool:
    """Whether *path* lies beneath *directory*, and is not itself."""
    return path != directory and is_beneath(path, directory)


def leads_out(followed: Followed, directories: Iterable[str]) -> bool:
    """Whether a link in one of *directories* led out of all of them.

    Where runs can write, a link may be theirs: it says nothing about what its caller wants.
    """
    inside = tuple(directories)
    if any(is_beneath(followed.real, directory) for directory in inside):
        return False
    return any(is_beneath(place, d) for place, _ in followed.links for d in inside)


def cut_short(path: str) -> str:
    """*path* for a message, which is to stay one that can be read."""
    return path if len(path) <= _SHOWN else path[:_SHOWN] + "..."
