"""Gives what a run made to the owner of its workspace, where it ran under a uid of its own.

Only root does this, and only at the level ``standard``: at ``strict`` an idmapped mount has the
files belong to the right owner from the first moment.

Why it is safe.  Only an inode that belongs to the run's uid is given away, a number that no
other account or live run has, so it is the run's own work.  The inode is held by a handle
from the check to the change: no name is looked up twice, no link is followed.  The bits that
would make a program run as its new owner are taken off first.
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
"""Of a look that has to find everything of a run, in the time that its end may be held up."""


class HandingOver:
    """Told of each entry of a walk; *uids*: those of the run, *owner* and *group* get its files.

    ``given``: how many did; ``refused``: how many could not be given.
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
        """Give the entry *name* of *directory* away if it is the run's."""
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
            return  # somebody put another one in its place
        try:
            if found.st_mode & _DANGEROUS and not stat.S_ISLNK(found.st_mode):
                # Through /proc, since fchmod(2) takes no such handle.
                os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(found.st_mode) & ~_DANGEROUS)
        except OSError:
            self.refused += 1
            return
        if self._chown(handle, b"", self._owner, self._group, _AT_EMPTY_PATH) == 0:
            self.given += 1
        else:
            self.refused += 1


def giving(root: int, uids: Collection[int]) -> HandingOver | None:
    """What hands over beneath the directory *root*; None where there is nothing to hand over."""
    if not uids:
        return None
    owner = os.fstat(root)
    # What belongs to the run itself has nobody to be given to.
    return None if owner.st_uid in uids else HandingOver(uids, owner.st_uid, owner.st_gid)


def hand_over(roots: Sequence[bytes], uids: Collection[int]) -> bool:
    """Give what *uids* own beneath *roots* to the owner of each root; whether all of it was.

    Blocks, for 5 seconds a root at most.
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
