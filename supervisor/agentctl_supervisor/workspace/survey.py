"""Compare a run's workspace before and after the run, for the `Workspace` of its report.

The result names everything that changed during the run.  Changes by another program, or by another
run in the same directory, cannot be told apart.  A deleted file is seen only as a change of its
directory.
"""

import errno
import os
import stat
import time
from collections.abc import Collection, Sequence
from typing import Final

from agentctl_protocol.os_names import display, to_bytes, to_text
from agentctl_protocol.records import Created
from agentctl_protocol.report import Workspace
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor.filesystem.open_beneath import HANDLE, open_beneath, open_root
from agentctl_supervisor.filesystem.writable_roots import roots_of
from agentctl_supervisor.workspace.changes import DEFAULT, Bounds, Walk
from agentctl_supervisor.workspace.clock import Beginning, beginning, is_since, since_ns
from agentctl_supervisor.workspace.exposure import Names, counts, exposed, names_now
from agentctl_supervisor.workspace.handing_over import BOUNDS as GIVE_BOUNDS
from agentctl_supervisor.workspace.handing_over import giving
from agentctl_supervisor.workspace.setuid_bits import TakingOff

LOOK_S: Final = 0.5
"""The longest time in seconds that the look at the writable directories may delay a run's end."""

_MAX_NOTES: Final = 4000


class Survey:
    """The survey of a run's writable directories.

    Make it when the run begins.  Call `look` after the run's processes have ended.
    """

    def __init__(self, created: Created | None, spec: RunSpec) -> None:
        self._path = created.workspace if created else ""
        self._roots = roots_of(self._path, spec)
        self._private = created is not None and created.private_workspace
        self._names: tuple[Names, ...] = ()
        self._began: Beginning | None = None
        if self._roots:
            level = spec.sandbox or Sandbox.STRICT
            self._names = tuple(names_now(root, spec.unprotect, level) for root in self._roots)
            # This comes last, so that what we did before does not count as the run's changes.
            self._began = beginning()

    def __repr__(self) -> str:
        return f"<Survey of {self._roots}>"

    @property
    def is_needed(self) -> bool:
        """True if the run has a workspace."""
        return self._began is not None

    def unseen(self, why: str, open_files: tuple[str, ...]) -> Workspace:
        """Return the workspace of a run whose files are not examined, for the reason *why*."""
        return Workspace(
            path=self._path, private=self._private, incomplete=why, open_at_kill=open_files
        )

    def look(
        self,
        uids: Collection[int] = (),
        seconds: float = LOOK_S,
        open_files: Sequence[str] = (),
    ) -> Workspace:
        """Examine the directories and return the result.  Blocks for about *seconds*.

        *uids*: files of these are handed over to the owner of the directory; then it may take
        longer (`handing_over.BOUNDS`).
        *open_files*: the files that were open for writing at the kill.
        """
        if self._began is None:
            return Workspace()
        found = _Found(since_ns(self._began), uids, tuple(open_files))
        bounds = DEFAULT
        if uids:
            bounds, seconds = GIVE_BOUNDS, max(seconds, GIVE_BOUNDS.seconds)
        deadline = time.monotonic() + seconds
        for path, names in zip(self._roots, self._names, strict=True):
            left = bounds._replace(seconds=max(deadline - time.monotonic(), 0.0))
            found.look_at(path, names, left, is_workspace=path is self._roots[0])
        return Workspace(
            path=self._path,
            private=self._private,
            changed=tuple(to_text(name) for name in sorted(found.changed)),
            changed_left_out=found.left_out,
            incomplete="; ".join(found.notes)[:_MAX_NOTES],
            special=tuple(sorted(found.special)),
            open_at_kill=found.open_files,
            exposed=tuple(to_text(name) for name in found.exposed),
        )


class _Found:
    """The findings so far, collected from one writable path after the other."""

    def __init__(self, since: int, uids: Collection[int], open_files: tuple[str, ...]) -> None:
        self.changed: list[bytes] = []
        self.left_out = 0
        self.special: list[str] = []
        self.notes: list[str] = []
        self.exposed: list[bytes] = []
        self.open_files = open_files
        self._since = since
        self._uids = uids

    def look_at(self, path: bytes, names: Names, bounds: Bounds, *, is_workspace: bool) -> None:
        """Examine the writable *path*; *names* are the protected names from before the run."""
        try:
            root = open_root(path)
        except OSError as error:
            self._look_at_file(path, error, names)
            return
        try:
            to_owner = giving(root, self._uids)
            bits = TakingOff(self._since, to_owner.on_entry if to_owner else None)
            walk = Walk(
                self._since,
                self._left_of(bounds),
                names.anywhere,
                bits.on_entry,
                counts,
            )
            walk.run(root)
            prefix = b"" if is_workspace else path + b"/"
            touched = exposed(root, self._since, names, walk.nested)
            self.exposed += [prefix + name for name in touched]
            if is_workspace:
                self.open_files = tuple(n for n in self.open_files if _may_be_half(root, n))
        finally:
            os.close(root)
        self.changed += [
            prefix + (name if is_workspace else name.removeprefix(b"./")) for name in walk.changed
        ]
        self.special += [f"{kind} {to_text(prefix + name)}" for kind, name in walk.specials]
        self.left_out += walk.left_out
        notes = list(walk.notes)
        if to_owner is not None and to_owner.refused:
            notes.append(f"{to_owner.refused} files could not be given to its owner")
        if bits.refused:
            notes.append(f"{bits.refused} files are setuid and could not be changed")
        where = "" if is_workspace else f"{_shown(path)}: "
        self.notes += [where + note for note in notes]

    def _left_of(self, bounds: Bounds) -> Bounds:
        """Return *bounds* minus what was found, since they count for all paths together."""
        return bounds._replace(
            names=bounds.names - len(self.changed),
            name_bytes=bounds.name_bytes - sum(map(len, self.changed)),
            specials=bounds.specials - len(self.special),
            special_bytes=bounds.special_bytes - sum(map(len, self.special)),
        )

    def _look_at_file(self, path: bytes, error: OSError, names: Names) -> None:
        """Examine *path*, which is not a directory that can be opened: ``--rw`` may name a file."""
        why = error.strerror
        if error.errno == errno.ENOTDIR:
            try:
                found = os.lstat(path)
            except OSError as missing:
                why = missing.strerror
            else:
                if is_since(found.st_ctime_ns, self._since):
                    self.changed.append(path)
                    if os.path.basename(path) in names.anywhere:
                        self.exposed.append(path)
                if stat.S_ISREG(found.st_mode):
                    return
                why = "it is no file any more"
        self.notes.append(f"{_shown(path)}: {why}")


def _shown(path: bytes) -> str:
    return display(to_text(path))


def _may_be_half(root: int, name: str) -> bool:
    """Return whether *name* may be a half-written file; a FIFO open for writing is not one."""
    if name.startswith("/"):
        return True
    try:
        handle = open_beneath(root, to_bytes(name), HANDLE)
    except OSError:
        return True  # it existed, and its present place is unknown
    try:
        return stat.S_ISREG(os.fstat(handle).st_mode)
    finally:
        os.close(handle)
