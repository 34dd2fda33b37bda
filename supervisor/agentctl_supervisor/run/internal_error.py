"""Internal errors of agentctl: an error in a task of one run ends that run and no other.

The user gets one line.  The traceback is kept in a file in the run's directory, for developers.
"""

import contextlib
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import trio

from agentctl_protocol.records import Stop
from agentctl_protocol.report import Actor, Report
from agentctl_protocol.vocabulary import Reason, Result, State
from agentctl_supervisor.errors import described
from agentctl_supervisor.recover.recovery import recover
from agentctl_supervisor.run.live_log import RunLog
from agentctl_supervisor.run.workspace_after_run import Aftermath
from agentctl_supervisor.spawner.keepers import Keepers
from agentctl_supervisor.store.run_directory import RunDirectory

FILE_NAME: Final = "traceback"
_MAX_BYTES: Final = 1 << 16
_ACTOR: Final = Actor(kind="supervisor", id="internal error")
_ENDED_BY_ERROR: Final = "written after an error in agentctl"


def keep(directory: Path, error: BaseException) -> str:
    """Write the traceback of *error* to a file in *directory*; return a sentence for people.

    The sentence names the error and the file.  An existing file stays as it is: later errors
    are consequences of the first.
    """
    path = directory / FILE_NAME
    text = "".join(traceback.format_exception(error)).encode(errors="backslashreplace")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.suppress(OSError), open(os.open(path, flags, 0o600), "wb") as file:
        file.write(text[-_MAX_BYTES:])
    return f"an error in agentctl ended it: {described(error)} (see {path})"


class Failure:
    """The first internal error in the work for a run, whichever caller started that work."""

    def __init__(self) -> None:
        self._error: Exception | None = None
        self._told = trio.Event()

    def tell(self, error: Exception) -> None:
        """Make `wait` raise *error*, or the earlier error if there is one."""
        self._error = self._error or error
        self._told.set()

    async def wait(self) -> None:
        """Wait for the first error and raise it."""
        await self._told.wait()
        assert self._error is not None
        raise self._error


async def end_run(
    error: Exception,
    directory: RunDirectory,
    log: RunLog,
    keepers: Keepers,
    aftermath: Aftermath,
) -> Report:
    """End a run because of *error* in one of its tasks, as if its supervisor were dead.

    The stop is written down.  Then the run is killed, proven gone, and its log is ended.  This
    uses only the run's files, because the objects that failed cannot be trusted.
    """
    detail = keep(directory.path, error)
    stop = Stop(Result.FAILED, Reason.INTERNAL, detail, _ACTOR, 0.0, 0.0, kill=True)
    with contextlib.suppress(Exception):
        log.decide(stop)
    if keepers.contained is None:
        with contextlib.suppress(Exception):
            await keepers.let_go()
    steps: tuple[Callable[[], object], ...] = (
        lambda: aftermath.leave("agentctl failed, and did not look at the files"),
        log.end,
        log.close,
        directory.unlock,
    )
    for step in steps:
        with contextlib.suppress(Exception):
            step()
    report: Report | None = None
    try:
        report = await trio.to_thread.run_sync(recover, directory, _ENDED_BY_ERROR)
    except Exception as another:  # noqa: BLE001 - whatever it is, the run ends
        with contextlib.suppress(Exception):
            keepers.kill()
        detail = f"{detail}; nobody looked whether all of it is gone: {described(another)}"
    if report is not None and report.finished:
        return report
    with contextlib.suppress(Exception):
        report = report or log.report()
    report = report or _unknown(directory)
    return msgspec.structs.replace(
        report,
        state=State.FINISHED,
        result=report.result or Result.FAILED,
        reason=report.reason or Reason.INTERNAL,
        detail=report.detail or detail,
    )


def _unknown(directory: RunDirectory) -> Report:
    return Report(id=directory.id, state=State.FINISHED, created_at=directory.created_at)
