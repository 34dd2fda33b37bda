"""One run's workspace, before and after: what it did there, as a `Workspace` of its report.

It names what changed while the run lived, whoever changed it: another program, or another
run in the same directory, leaves the same traces.  What was deleted leaves none but the
change of its directory.
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
"""How long the look at what may be written to may hold up the end of a run, in seconds."""

_MAX_NOTES: Final = 4000


class Survey:
    """Made when the run begins; `look` is called once its processes are gone.

    ``is_needed``: the run has a workspace.
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
            # Last: what we have done until here is not the run's.
            self._began = beginning()

    def __repr__(self) -> str:
        return f"<Survey of {self._roots}>"

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to look at."""
        return self._began is not None

    def unseen(self, why: str, open_files: tuple[str, ...]) -> Workspace:
        """The workspace of a run whose files nobody looks at, because of *why*."""
        return Workspace(
            path=self._path, private=self._private, incomplete=why, open_at_kill=open_files
        )

    def look(
        self,
        uids: Collection[int] = (),
        seconds: float = LOOK_S,
        open_files: Sequence[str] = (),
    ) -> Workspace:
        """What is there now.  Blocks for about *seconds*.

        *uids*: whoever owns the workspace gets what belongs to these.
        *open_files*: what was open for writing at the kill.
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
    """What was found so far, of one writable path after the other."""

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
        """Look at *path*, which may be written to; *names* are those that it had before."""
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
        """What is left of *bounds* beside what was found: they are for everything together."""
        return bounds._replace(
            names=bounds.names - len(self.changed),
            name_bytes=bounds.name_bytes - sum(map(len, self.changed)),
            specials=bounds.specials - len(self.special),
            special_bytes=bounds.special_bytes - sum(map(len, self.special)),
        )

    def _look_at_file(self, path: bytes, error: OSError, names: Names) -> None:
        """*path* cannot be opened as a directory: ``--rw`` may have named a file."""
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
    """Whether *name* may be a half-written file: a FIFO that was open for writing is none."""
    if name.startswith("/"):
        return True
    try:
        handle = open_beneath(root, to_bytes(name), HANDLE)
    except OSError:
        return True  # it was there, and where it is now is not known
    try:
        return stat.S_ISREG(os.fstat(handle).st_mode)
    finally:
        os.close(handle)
