"""Collects what the log says about a run's changes to its workspace.

Pure; a part of `reconcile.Fold`.
"""

from typing import Final

import msgspec

from agentctl_protocol.records import Created, Exit, RungRecord, WorkspaceRecord
from agentctl_protocol.report import Workspace
from agentctl_protocol.vocabulary import Rung

_NOBODY_LOOKED: Final = "its supervisor died before it looked at the files"
_FEW: Final = 20


class WorkspaceHistory:
    """A collector of the records about the workspace; `workspace` returns the result."""

    def __init__(self) -> None:
        self._path = ""
        self._private = False
        self._open_at_kill: dict[str, None] = {}
        self._unread = ""
        self._left = 0
        self._found: Workspace | None = None

    def on_created(self, body: Created) -> None:
        """Take the record that the run was created."""
        self._path, self._private = body.workspace, body.private_workspace

    def on_rung(self, body: RungRecord) -> None:
        """Take the record of a rung."""
        if body.step is Rung.SIGKILL:
            self._open_at_kill.update(dict.fromkeys(body.open_files))
            self._unread = self._unread or body.open_unread

    def on_exit(self, body: Exit) -> None:
        """Take the record of the agent's exit.

        The processes that it left behind were killed before their open files could be read.
        """
        self._left = body.left

    def on_workspace(self, body: WorkspaceRecord) -> None:
        """Take the record of an inspection of the workspace; the first one counts."""
        self._found = self._found or body.workspace

    @property
    def open_at_kill(self) -> tuple[str, ...]:
        """The files that were open for writing just before SIGKILL."""
        return tuple(self._open_at_kill)

    def workspace(self, *, over: bool, started: bool) -> Workspace:
        """Return the workspace for the report.

        *over*: the run is over.  *started*: the agent may have changed something.
        """
        if not self._path:
            return Workspace()
        found = self._found
        notes = [] if found is None else [found.incomplete]
        if over and started:
            if found is None:
                notes.append(_NOBODY_LOOKED)
            if self._unread:
                notes.append(self._unread)
            if self._left:
                noun = "process" if self._left == 1 else "processes"
                notes.append(f"what {self._left} {noun} that it left behind had open is not known")
        known = found or Workspace(
            path=self._path, private=self._private, open_at_kill=self.open_at_kill
        )
        return msgspec.structs.replace(known, incomplete="; ".join(filter(None, notes)))


def without_names(found: Workspace) -> Workspace:
    """Return *found* in few bytes, for a disk that is almost full."""
    return msgspec.structs.replace(
        found,
        changed=(),
        changed_left_out=found.changed_left_out + len(found.changed),
        special=(),
        open_at_kill=found.open_at_kill[:_FEW],
        exposed=found.exposed[:_FEW],
        incomplete="; ".join(filter(None, (found.incomplete, "the disk is full"))),
    )
