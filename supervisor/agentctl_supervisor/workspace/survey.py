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

from agentctl_protocol.records import Created
from agentctl_protocol.report import Workspace
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor.workspace.beneath import HANDLE, open_beneath, open_root
from agentctl_supervisor.workspace.changes import Bounds, Walk
from agentctl_supervisor.workspace.clock import Beginning, beginning, is_since, since_ns
from agentctl_supervisor.workspace.exposure import Names, exposed, names_now
from agentctl_supervisor.workspace.handing_over import BOUNDS as GIVE_BOUNDS
from agentctl_supervisor.workspace.handing_over import giving
from agentctl_supervisor.workspace.roots import as_text, roots_of

LOOK_S: Final = 0.5
"""How long the look at what may be written to may hold up the end of a run, in seconds."""


class Survey:
    """Made when the run begins; `look` is called once its processes are gone.

    ``is_needed``: the run has a workspace.
    """

    def __init__(self, created: Created | None, spec: RunSpec) -> None:
        self._path = created.workspace if created else ""
        self._roots = roots_of(self._path, spec)
        self._private = created is not None and created.private_workspace
        self._names = Names()
        self._began: Beginning | None = None
        if self._roots:
            level = spec.sandbox or Sandbox.STRICT
            self._names = names_now(self._roots[0], spec.unprotect, level)
            # Last: what we have done until here is not the run's.
            self._began = beginning()

    def __repr__(self) -> str:
        return f"<Survey of {self._roots}>"

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to look at."""
        return self._began is not None

    def unseen(self, why: str) -> Workspace:
        """The workspace of a run whose files nobody looks at, because of *why*."""
        return Workspace(path=self._path, private=self._private, incomplete=why)

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
        since = since_ns(self._began)
        bounds = Bounds()
        if uids:
            bounds, seconds = GIVE_BOUNDS, max(seconds, GIVE_BOUNDS.seconds)
        deadline = time.monotonic() + seconds
        changed: list[bytes] = []
        special: list[str] = []
        notes: list[str] = []
        left_out = 0
        names: list[bytes] = []
        halves = tuple(open_files)
        for number, path in enumerate(self._roots):
            prefix = b"" if number == 0 else path + b"/"
            obeyed = self._names.obeyed if number == 0 else ()
            try:
                root = open_root(path)
            except OSError as error:
                if not _is_changed_file(path, error, since):
                    notes.append(f"{as_text(path)}: {error.strerror}")
                else:
                    changed.append(path)
                continue
            try:
                to_owner = giving(root, uids)
                bounds = bounds._replace(seconds=max(deadline - time.monotonic(), 0.0))
                walk = Walk(since, bounds, obeyed, to_owner.on_entry if to_owner else None)
                walk.run(root)
                if number == 0:
                    names = exposed(root, walk.touched, self._names)
                    halves = tuple(name for name in halves if _may_be_half(root, name))
            finally:
                os.close(root)
            where = f"{as_text(path)}: " if number else ""
            notes += [where + note for note in walk.notes]
            if to_owner is not None and to_owner.refused:
                notes.append(f"{where}{to_owner.refused} files could not be given to its owner")
            changed += [prefix + name for name in walk.changed]
            special += [f"{kind} {as_text(prefix + name)}" for kind, name in walk.specials]
            left_out += walk.left_out
        return Workspace(
            path=self._path,
            private=self._private,
            changed=tuple(as_text(name) for name in sorted(changed)),
            changed_left_out=left_out,
            incomplete="; ".join(notes),
            special=tuple(sorted(special)),
            open_at_kill=halves,
            exposed=tuple(as_text(name) for name in names),
        )


def _is_changed_file(path: bytes, error: OSError, since: int) -> bool:
    """Whether what may be written to is a file, and no directory, and changed."""
    if error.errno != errno.ENOTDIR:
        return False
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and is_since(found.st_ctime_ns, since)


def _may_be_half(root: int, name: str) -> bool:
    """Whether *name* may be a half-written file: a FIFO that was open for writing is none."""
    if name.startswith("/"):
        return True
    try:
        handle = open_beneath(root, os.fsencode(name), HANDLE)
    except OSError:
        return True  # it was there, and where it is now is not known
    try:
        return stat.S_ISREG(os.fstat(handle).st_mode)
    finally:
        os.close(handle)
