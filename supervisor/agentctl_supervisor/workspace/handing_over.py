"""Give the files that a run with its own uid made to the owner of the workspace.

Only root does this, and only at the level ``standard``.  At ``strict`` an idmapped mount gives the
files the right owner when they are made.

This is safe for these reasons.  Only an inode that belongs to the run's uid is given away.  No
other account or live run has that uid, so the run made the inode.  A handle holds the inode from
the check to the change: no name is looked up twice, and no link is followed.  The setuid and setgid
bits, which would make a program run as its new owner, are removed first.
"""

import os
import stat
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Final

from agentctl_supervisor.filesystem.open_beneath import HANDLE, open_root
from agentctl_supervisor.workspace.changes import Bounds, Walk

_AT_EMPTY_PATH: Final = 0x1000
_DANGEROUS: Final = stat.S_ISUID | stat.S_ISGID
_NEVER_NS: Final = sys.maxsize
BOUNDS: Final = Bounds(entries=1_000_000, seconds=5.0)
"""The limits of a walk that must find all files of a run, in the time that it may delay the run's
end."""


class HandingOver:
    """Hand over the entries of a walk that belong to the run's *uids* to *owner* and *group*.

    ``given``: the number of files handed over.
    ``refused``: the number of files that could not be handed over.
    """

    def __init__(self, uids: Collection[int], owner: int, group: int) -> None:
        self.given = 0
        self.refused = 0
        self._uids = uids
        self._owner = owner
        self._group = group
        self._chown = _fchownat()

    def __repr__(self) -> str:
        return f"<HandingOver to {self._owner}: {self.given} given, {self.refused} refused>"

    def on_entry(self, directory: int, name: str, found: os.stat_result) -> None:
        """Hand over the entry *name* of *directory* if it belongs to the run."""
        if found.st_uid not in self._uids:
            return
        try:
            handle = os.open(name, HANDLE, dir_fd=directory)
        except FileNotFoundError:
            return
        except OSError:
            self.refused += 1
            return
        try:
            self._give(handle)
        finally:
            os.close(handle)

    def _give(self, handle: int) -> None:
        found = os.fstat(handle)
        if found.st_uid not in self._uids:
            return  # another process has replaced the entry
        try:
            if found.st_mode & _DANGEROUS and not stat.S_ISLNK(found.st_mode):
                # Through /proc, since fchmod(2) does not accept an O_PATH descriptor.
                os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(found.st_mode) & ~_DANGEROUS)
        except OSError:
            self.refused += 1
            return
        if self._chown(handle, b"", self._owner, self._group, _AT_EMPTY_PATH) == 0:
            self.given += 1
        else:
            self.refused += 1


def giving(root: int, uids: Collection[int]) -> HandingOver | None:
    """Return the `HandingOver` for the directory *root*; None if there is nothing to hand over."""
    if not uids:
        return None
    owner = os.fstat(root)
    # If the directory itself belongs to the run, there is no other owner.
    return None if owner.st_uid in uids else HandingOver(uids, owner.st_uid, owner.st_gid)


def hand_over(roots: Sequence[bytes], uids: Collection[int]) -> bool:
    """Hand over the files of *uids* beneath *roots* to the owner of each root.

    Return whether all files were handed over.  Blocks for at most 5 seconds a root.
    """
    complete = True
    for path in roots:
        try:
            root = open_root(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            complete = False
            continue
        try:
            to_owner = giving(root, uids)
            if to_owner is not None:
                walk = Walk(_NEVER_NS, BOUNDS, on_entry=to_owner.on_entry)
                walk.run(root)
                complete = complete and not (walk.notes or to_owner.refused)
        finally:
            os.close(root)
    return complete


def _fchownat() -> Callable[[int, bytes, int, int, int], int]:
    import ctypes

    libc = ctypes.CDLL(None)
    libc.fchownat.argtypes = (
        *(ctypes.c_int, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint, ctypes.c_int),
    )
    return libc.fchownat
