"""What the log says that a run did to its workspace.  Pure; a part of `reconcile.Fold`."""

from typing import Final

import msgspec

from agentctl_protocol.records import Created, Exit, RungRecord, WorkspaceRecord
from agentctl_protocol.report import Workspace
from agentctl_protocol.vocabulary import Rung

_NOBODY_LOOKED: Final = "its supervisor died before it looked at the files"
_FEW: Final = 20


class WorkspaceHistory:
    """Told of the records that matter; `workspace` is what they come to."""

    def __init__(self) -> None:
        self._path = ""
        self._private = False
        self._open_at_kill: dict[str, None] = {}
        self._unread = ""
        self._left = 0
        self._found: Workspace | None = None

    def on_created(self, body: Created) -> None:
        """The run exists."""
        self._path, self._private = body.workspace, body.private_workspace

    def on_rung(self, body: RungRecord) -> None:
        """A step of the ladder was taken."""
        if body.step is Rung.SIGKILL:
            self._open_at_kill.update(dict.fromkeys(body.open_files))
            self._unread = self._unread or body.open_unread

    def on_exit(self, body: Exit) -> None:
        """The agent ended, and what it left behind was killed before anybody could look."""
        self._left = body.left

    def on_workspace(self, body: WorkspaceRecord) -> None:
        """Somebody looked."""
        self._found = self._found or body.workspace

    @property
    def open_at_kill(self) -> tuple[str, ...]:
        """What was open for writing just before SIGKILL."""
        return tuple(self._open_at_kill)

    def workspace(self, *, over: bool, started: bool) -> Workspace:
        """For the report.  *over*: the run is; *started*: the agent may have done something."""
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
    """*found* in few bytes: for a disk with hardly any room."""
    return msgspec.structs.replace(
        found,
        changed=(),
        changed_left_out=found.changed_left_out + len(found.changed),
        special=(),
        open_at_kill=found.open_at_kill[:_FEW],
        exposed=found.exposed[:_FEW],
        incomplete="; ".join(filter(None, (found.incomplete, "the disk is full"))),
    )
