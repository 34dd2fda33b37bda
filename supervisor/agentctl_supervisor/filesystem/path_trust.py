"""Check that no other user could redirect a path.

The user and root believe the files that are kept of runs.  So each directory and each link on the
way must belong to us or to root, and no other user may be able to replace it.
"""

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import Final

from agentctl_supervisor.errors import StateDirectoryError

_MOST_LINKS: Final = 40
"""The kernel's own limit: path_resolution(7)."""
_EVERY_UID: Final = ["0", "0", "4294967295"]
_ACL: Final = "system.posix_acl_access"

ELSEWHERE: Final = "set AGENTCTL_HOME to a directory of yours"


def check_ours(path: Path) -> None:
    """Check that no other user can redirect the part of the absolute *path* that exists.

    The rest can be made safely, because only we can make it in the last existing directory.

    Raises:
        StateDirectoryError: another user can redirect it, or it is not our directory.
    """
    at, below = "/", _words(os.fspath(path))
    found = os.lstat(at)
    links = 0
    while True:
        _check_directory(path, at, found, is_last=not below)
        if not below:
            return
        word = below.pop()
        if word == "..":
            at = os.path.dirname(at)
            found = os.lstat(at)
            continue
        next_one = os.path.join(at, word)
        try:
            there = os.lstat(next_one)
            target = os.readlink(next_one) if stat.S_ISLNK(there.st_mode) else None
        except FileNotFoundError:
            return
        except OSError as error:
            raise StateDirectoryError(f"cannot use {path}: {error.strerror}", ELSEWHERE) from None
        if target is None:
            at, found = next_one, there
            continue
        links += 1
        if not is_trusted(there.st_uid) or links > _MOST_LINKS:
            raise StateDirectoryError(
                f"cannot use {path}: {next_one} is a link of {_name(there.st_uid)}", ELSEWHERE
            )
        below += _words(target)
        if target.startswith("/"):
            at = "/"
            found = os.lstat(at)


def is_trusted(uid: int) -> bool:
    """Return whether *uid* is ours or root's, or is unknown in our user namespace.

    An unknown uid belongs to a user outside of the namespace, who can change everything in it
    anyway.
    """
    return uid in (os.geteuid(), 0) or (uid == _overflow_uid() and not _has_every_uid())


def _check_directory(path: Path, at: str, found: os.stat_result, *, is_last: bool) -> None:
    """Check the directory *at* on the way to *path*; ``is_last``: it is *path* itself."""
    where = "it" if is_last else at
    if not stat.S_ISDIR(found.st_mode):
        raise StateDirectoryError(f"cannot use {path}: {where} is not a directory", ELSEWHERE)
    owner = found.st_uid
    if not is_trusted(owner) or (is_last and owner == 0 and os.geteuid() != 0):
        theirs = f"sudo -u '{_name(owner, '#')}' agentctl ..., or " if os.geteuid() == 0 else ""
        raise StateDirectoryError(
            f"cannot use {path}: {where} belongs to {_name(owner)}", f"{theirs}{ELSEWHERE}"
        )
    if _is_open_to_others(at, found) and (is_last or not found.st_mode & stat.S_ISVTX):
        raise StateDirectoryError(
            f"cannot use {path}: others can write into {where}",
            f"chmod go-w {at}, or {ELSEWHERE}",
        )


def _is_open_to_others(at: str, found: os.stat_result) -> bool:
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_of_one(at, found)


def _is_of_one(at: str, found: os.stat_result) -> bool:
    """Return whether the directory's group has only its owner, as on systems with umask 002."""
    try:
        os.getxattr(at, _ACL)
    except OSError:
        pass
    else:
        return False  # with an ACL, the group bits are a mask for further users and groups
    try:
        owner = pwd.getpwuid(found.st_uid).pw_name
        group = grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    return group.gr_name == owner and set(group.gr_mem) <= {owner}


def _words(path: str) -> list[str]:
    """Return the components of *path*, the last one first."""
    return [word for word in reversed(path.split("/")) if word not in ("", ".")]


def _name(uid: int, unnamed: str = "uid ") -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"{unnamed}{uid}"


def _overflow_uid() -> int:
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return 65534


def _has_every_uid() -> bool:
    """Return whether the user namespace maps every uid to itself."""
    try:
        return Path("/proc/self/uid_map").read_text().split() == _EVERY_UID
    except OSError:
        return True
