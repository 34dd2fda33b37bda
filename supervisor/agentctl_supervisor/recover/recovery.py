"""Finishes the records of a run whose supervisor died before it finished them.

Every program that looks at such a run does this: show, ps, stop, the next supervisor.  Several
can do it at the same time, it can be repeated after it was interrupted, and it works on a full
disk: the report is computed from the log, and the log decides.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from agentctl_protocol.os_names import to_bytes
from agentctl_protocol.records import End, Lost, Observed, Record, Stop, SupervisorRecord
from agentctl_protocol.report import Processes, Report
from agentctl_protocol.spawning import Exited
from agentctl_protocol.vocabulary import By, Sandbox
from agentctl_supervisor.errors import DamagedRunError, LogFullError, StateDirectoryError
from agentctl_supervisor.processes import oom_kills, process_tree
from agentctl_supervisor.recover.leftover_processes import Leftovers, end_leftovers
from agentctl_supervisor.recover.stop_seen_by_client import (
    is_seen_to_be_gone,
    with_intent,
    with_observed,
)
from agentctl_supervisor.report.ending import exit_record, processes_at_end
from agentctl_supervisor.report.estimates import estimate
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.store.event_log import LogWriter
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.record_room import fitted
from agentctl_supervisor.store.run_directory import RunDirectory
from agentctl_supervisor.store.socket_files import remove_if_dead

_T = TypeVar("_T")

OTHERS_RECOVERY_S: Final = 15.0
"""Seconds to wait for another process's recovery; the killing alone may take ten of them."""


def current(directory: RunDirectory) -> Report:
    """Return what is known of a run now; recover it first if its supervisor is dead.

    Raises:
        DamagedRunError: a file of the run cannot be read.
        StateDirectoryError: the run's directory cannot be used.
    """
    report = directory.read_report()
    if report is not None:
        return report
    if directory.is_held() and not directory.locked_by_us:
        known = _read(directory)
        if not _is_supervisor_dead(known.fold):
            # The run may have finished after the first look for the report.
            return directory.read_report() or _with_word_of_others(directory, known)
    return recover(directory)


def _with_word_of_others(directory: RunDirectory, known: "_Known") -> Report:
    intent = _if_readable(directory.read_intent)
    observed = _if_readable(directory.read_observed)
    report = known.report()
    if observed is not None:
        return with_observed(known.fold, report, intent, observed)
    report = with_intent(report, intent)
    if is_seen_to_be_gone(known.fold):
        # The supervisor was frozen while the keepers ended the run, or it is about to record
        # the end.
        return msgspec.structs.replace(report, detail=NOT_TOLD_YET)
    return report


OUT_OF_SIGHT: Final = (
    "its supervisor is gone; whether anything of it is left cannot be told from this pid namespace"
    " (if its container is gone, nothing is)"
)
NOT_TOLD_YET: Final = "nothing is left of it; its supervisor has not written down yet how it ended"
AFTER_ITS_SUPERVISOR: Final = "written after the end of its supervisor"


def recover(directory: RunDirectory, detail: str = AFTER_ITS_SUPERVISOR) -> Report:
    """Add the missing records to the log of a run whose lock holder died; return its report.

    *detail*: why the log is not ended by the holder.

    The remaining processes of the run are killed.  If another process recovers the run at the
    same time, this waits for it.  If the disk is full, the report is still correct.  A run in
    another pid namespace is not finished: its processes cannot be seen or killed from here.

    Raises:
        DamagedRunError: a file of the run cannot be read.
        StateDirectoryError: the run's directory cannot be used.
    """
    if not directory.wait_and_lock(OTHERS_RECOVERY_S):
        return directory.read_report() or _read(directory).report()
    try:
        report = directory.read_report()
        if report is None:
            report = _finish(directory, detail)
            if report.finished:
                _settle_files(directory, report)
                # If this fails, the next reader tries again.
                with contextlib.suppress(StateDirectoryError):
                    directory.write_report(report)
        return report
    finally:
        directory.unlock()


def _settle_files(directory: RunDirectory, report: Report) -> None:
    """Finish the work on the files of an ended run that its supervisor did not finish."""
    if report.processes.survivors:
        return
    from agentctl_supervisor.workspace.own_directories import remove_private

    remove_private(directory.path)
    if report.sandbox is not Sandbox.STANDARD or os.geteuid() != 0:
        return
    fold = _read(directory).fold
    if fold.created is not None and fold.created.uid == 0:
        from agentctl_supervisor.filesystem.writable_roots import roots_of
        from agentctl_supervisor.processes.own_uids import uids_of
        from agentctl_supervisor.workspace.handing_over import hand_over

        # The log does not say which of the supervisor's uids the run had.  All of them can be
        # handed over, because the supervisor's other runs have ended as well.
        roots = roots_of(report.workspace.path, fold.spec)
        hand_over(roots, uids_of(fold.created.supervisor.pid))


class _Known(NamedTuple):
    """A log that was read, and the fold of its records."""

    fold: Fold
    reader: LogReader

    def report(self) -> Report:
        return self.fold.report(
            log_bytes=self.reader.bytes,
            torn_bytes=self.reader.torn_bytes,
            damaged=self.reader.damaged,
        )


def _read(directory: RunDirectory) -> _Known:
    fold = Fold(directory.id, directory.read_spec(), directory.created_at)
    reader = LogReader(directory.path, directory.id)
    for record in reader:
        fold.apply(record)
    return _Known(fold, reader)


def _is_supervisor_dead(fold: Fold) -> bool:
    """Return True if the supervisor is dead, so that a recovering process holds the lock."""
    created = fold.created
    if created is None or process_tree.is_out_of_sight(created):
        return False
    if created.boot_id != process_tree.boot_id():
        return True
    return not process_tree.is_alive(created.supervisor)


def _finish(directory: RunDirectory, detail: str) -> Report:
    known = _read(directory)
    fold, reader = known.fold, known.reader
    if fold.created is not None:
        with contextlib.suppress(ValueError):  # in a damaged log
            remove_if_dead(to_bytes(fold.created.socket))
    if fold.ended:
        return known.report()
    if fold.created is not None and process_tree.is_out_of_sight(fold.created):
        report = with_intent(known.report(), _if_readable(directory.read_intent))
        return msgspec.structs.replace(report, detail=OUT_OF_SIGHT)
    damaged = reader.damaged
    intent = _read_intent(directory, damaged)
    # Read this before `end_leftovers` removes the run's control group.
    out_of_memory = oom_kills.while_there_was(fold)
    leftovers = end_leftovers(fold.created, fold.contained, directory.id)
    observed = _if_readable(directory.read_observed) if intent is not None else None
    missing = [
        fitted(body)[0]
        for body in missing_records(
            fold,
            intent,
            leftovers,
            reader.torn_bytes,
            observed=observed,
            exited=_if_readable(directory.read_exit),
            out_of_memory=out_of_memory,
            detail=detail,
        )
    ]
    log_bytes = _append(directory, fold, missing, reader)
    with contextlib.suppress(OSError):  # the log says it now
        os.unlink(directory.exit_path)
    return fold.report(log_bytes=log_bytes, damaged=damaged)


def missing_records(
    fold: Fold,
    intent: Stop | None,
    leftovers: Leftovers,
    torn_bytes: int,
    *,
    observed: Observed | None = None,
    exited: Exited | None = None,
    out_of_memory: str = "",
    detail: str = AFTER_ITS_SUPERVISOR,
) -> list[SupervisorRecord]:
    """Return the records that are missing in the log of a dead writer, in order.  Pure.

    *exited*: the last message of the run's warden, which outlived the supervisor for a moment.
    """
    missing: list[SupervisorRecord] = [estimate(cut) for cut in fold.cut_calls(over=True)]
    if fold.decided is None and intent is not None:
        missing.append(msgspec.structs.replace(intent, intent=True))
    elif fold.decided is None:
        missing.append(Lost(detail=_what_is_known(fold, leftovers, out_of_memory)))
    if exited is not None and fold.exit is None:
        missing.append(exit_record(exited, out_of_memory))
    counted = Processes(
        max(fold.processes_seen, leftovers.seen),
        leftovers.killed,
        len(leftovers.survivors),
        at_least=not fold.is_all_seen,
    )
    if observed is not None:
        missing.extend(observed.steps)
    if exited is None and fold.exit is not None:
        exited = Exited(left=fold.exit.left, orphaned=fold.exit.orphaned)
    missing.append(
        End(
            processes=processes_at_end(exited, counted, observed, started=fold.started),
            survivors=leftovers.survivors,
            torn_bytes=torn_bytes,
            detail=detail,
            # Processes that were still alive ended now.  Otherwise, the last record is the last
            # known moment.
            at_ns=0 if leftovers.seen else fold.last_ns,
        )
    )
    return missing


def _append(
    directory: RunDirectory, fold: Fold, missing: Sequence[SupervisorRecord], reader: LogReader
) -> int:
    """Append *missing* to the log, if the disk has room, and apply it to *fold* in any case.

    Returns:
        the length of the log.
    """
    writer: LogWriter | None = None
    try:
        writer = LogWriter(directory.path, directory.id, end=reader.end)
        writer.use_reserve()
        appended: Sequence[tuple[int, int]] = writer.append_batch(
            [(body, By.SUPERVISOR, 1) for body in missing]
        )
        writer.sync()
    except LogFullError:
        next_seq, now_ns = reader.end.next_seq if reader.end else 1, time.time_ns()
        appended = [(next_seq + i, now_ns) for i in range(len(missing))]
    for (seq, time_ns), body in zip(appended, missing, strict=True):
        fold.apply(Record(seq, time_ns, By.SUPERVISOR, body))
    if writer is None:
        return reader.bytes
    writer.close()
    return writer.size


def _if_readable(read: Callable[[], _T | None]) -> _T | None:
    """Return the result of *read*, or None if its file is damaged.

    Only for files that give details of how the run ended and decide nothing.
    """
    try:
        return read()
    except DamagedRunError:
        return None


def _read_intent(directory: RunDirectory, damaged: list[str]) -> Stop | None:
    try:
        return directory.read_intent()
    except DamagedRunError as error:
        damaged.append(str(error))
        return None


def _what_is_known(fold: Fold, leftovers: Leftovers, out_of_memory: str) -> str:
    if leftovers.is_after_restart:
        return "the machine was restarted while it ran"
    left = "" if leftovers.survivors else ", and nothing is left of it"
    if not fold.started:
        left = " before the agent began"
    return f"its supervisor died{left}{f'; {out_of_memory}' if out_of_memory else ''}"
