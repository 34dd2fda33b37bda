"""Surveys a run's workspace and removes its private files, once its processes are gone.

The workspace is surveyed before the run's end is written down; then the files that only the
run used are removed.  Both can take long, or hang together with a file system.  So both run in
threads and have a time limit: the end of a run does not wait for a disk.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Final

import trio

from agentctl_protocol.records import WorkspaceRecord
from agentctl_protocol.report import Workspace
from agentctl_supervisor.event_loop.worker_threads import run_sync
from agentctl_supervisor.run.live_log import RunLog
from agentctl_supervisor.workspace.handing_over import BOUNDS
from agentctl_supervisor.workspace.own_directories import remove_private
from agentctl_supervisor.workspace.survey import LOOK_S, Survey

AT_ONCE: Final = 4
"""The number of surveys at the same time: the interpreter's lock would serialise more anyway."""
_LEAST_S: Final = 0.02
_HUNG_S: Final = 2.0
_limiter: Final = trio.lowlevel.RunVar[trio.CapacityLimiter]("aftermath")


class Aftermath:
    """The work on the files of one run, whose log already holds its `Created` record.

    ``own_uid``: a uid of the host that only this run has.  It is set before the launch if the
    run's files must be given to the owner of the workspace.
    """

    own_uid: int | None = None

    def __init__(self, log: RunLog, directory: Path) -> None:
        self._log = log
        self._directory = directory
        self._survey = Survey(log.fold.created, log.fold.spec)

    def __repr__(self) -> str:
        return f"<Aftermath of {self._survey!r}>"

    async def write_down(self) -> None:
        """Append a record of what the run did to its workspace."""
        if self._survey.is_needed and self._log.fold.started:
            found = await self._look(() if self.own_uid is None else (self.own_uid,))
            self._log.append(WorkspaceRecord(found))

    def leave(self, why: str) -> None:
        """Append a record that the workspace was not surveyed, and *why*."""
        if self._survey.is_needed and self._log.fold.started:
            found = self._survey.unseen(why, self._log.fold.open_at_kill)
            self._log.append(WorkspaceRecord(found))

    def remove_private(self) -> None:
        """Remove the run's private files.  Blocks, but not longer than a limit."""
        remove_private(self._directory)

    async def _look(self, uids: Collection[int]) -> Workspace:
        limiter = _common_limiter()
        # If a supervisor ends hundreds of runs, their reports must not take minutes.
        waiting = limiter.statistics().tasks_waiting
        seconds = max(LOOK_S / (1 + waiting / AT_ONCE), _LEAST_S)
        look = self._survey.look
        open_files = self._log.fold.open_at_kill
        why = "its file system did not answer"
        async with limiter:
            with trio.move_on_after(_HUNG_S + max(seconds, BOUNDS.seconds if uids else 0.0)):
                try:
                    return await run_sync(
                        "workspaces",
                        look,
                        *(uids, seconds, open_files),
                        abandon_on_cancel=True,
                    )
                except OSError as error:
                    why = f"looking failed: {error.strerror}"
                except RuntimeError:  # no thread is kept for this, and none can be started
                    why = "looking failed: no thread could be started"
        # Even if the survey fails, the run's end is written down.
        return self._survey.unseen(why, open_files)


def _common_limiter() -> trio.CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(AT_ONCE)
        _limiter.set(limiter)
        return limiter
