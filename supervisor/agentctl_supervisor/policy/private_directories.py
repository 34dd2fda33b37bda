"""Directories of a run's own on the disk: made before it, and removed, or given back, after it.

A fresh workspace stays: what the run made is in it.  Home and ``/tmp`` at standard, which has no
memory of its own to put them into, go.  The tree of the run is dead by the time we clean up,
but what it left is its own choice, so everything is opened by descriptor and without a link.
"""

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Final

import trio

from agentctl_protocol.spawning import Bind
from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor.policy.decision import Policy

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_GIVEN: Final = 1_000_000


def make(policy: Policy, own_uid: int | None) -> None:
    """Make the directories of *policy*, for *own_uid* where that is to own them.

    Raises:
        OSError: one cannot be made.
    """
    for path in policy.to_make:
        os.mkdir(path, 0o700)
        if own_uid is not None and policy.level is Sandbox.STANDARD:
            # Made just now by us, in a directory of ours that nobody else can enter.
            os.chown(path, own_uid, own_uid, follow_symlinks=False)


async def clean_up(policy: Policy, own_uid: int | None) -> None:
    """Remove home and /tmp; give files of *own_uid* that are outside to who owns their place."""
    if policy.level is not Sandbox.STANDARD:
        return
    await trio.to_thread.run_sync(_clean_up, policy, own_uid)


def _clean_up(policy: Policy, own_uid: int | None) -> None:
    for path in (policy.home, policy.tmp):
        discard(path)
    if own_uid is None:
        return
    for piece in policy.view.pieces:
        part = piece.part
        if isinstance(part, Bind) and part.writable and part.mapped:
            give_to_owner(piece.path, own_uid)


def discard(path: str) -> None:
    """Remove the directory *path* with all that is in it, as far as that is possible."""
    import shutil

    def open_up(_: object, failed: str, __: object) -> None:
        # What the run made unreadable is readable to its owner again.
        with contextlib.suppress(OSError):
            os.chmod(os.path.dirname(failed), 0o700, follow_symlinks=False)
        with contextlib.suppress(OSError, NotImplementedError):
            os.chmod(failed, 0o700, follow_symlinks=False)

    shutil.rmtree(path, onerror=open_up)
    if os.path.lexists(path):
        shutil.rmtree(path, ignore_errors=True)


def give_to_owner(path: str, uid: int) -> None:
    """Give what belongs to *uid* in *path* to the owner of *path*.  Root only.

    Safe: *uid* was that of one run, which is dead, so whatever has it was made by that run.
    The kernel takes set-uid bits away with the change: chown(2).
    """
    with contextlib.suppress(OSError):
        owner = os.stat(path, follow_symlinks=False)
        for directory, name in _of(path, uid):
            with contextlib.suppress(OSError):
                os.chown(name, owner.st_uid, owner.st_gid, dir_fd=directory, follow_symlinks=False)


def _of(path: str, uid: int) -> Iterator[tuple[int, str]]:
    """Directory and name of all that *uid* has beneath *path*, on one file system."""
    device = os.stat(path, follow_symlinks=False).st_dev
    left = _MOST_GIVEN
    for _, directories, files, at in os.fwalk(path, follow_symlinks=False):
        for name in (*files, *directories):
            try:
                found = os.stat(name, dir_fd=at, follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(found.st_mode) and found.st_dev != device:
                directories.remove(name)
            if found.st_uid == uid:
                yield at, name
            left -= 1
            if left <= 0:
                return
