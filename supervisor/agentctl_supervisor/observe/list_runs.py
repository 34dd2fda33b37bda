"""Lists runs with what is known of them now, fast even if there are many."""

import os
from collections.abc import Callable, Iterator
from typing import Final

from agentctl_protocol.records import Created
from agentctl_protocol.report import Report
from agentctl_supervisor.errors import AgentctlError, DamagedRunError, NoSuchRunError
from agentctl_supervisor.store.finished_index import FinishedIndex, Summary, created_s, summary_of
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import Home, RunDirectory

_MANY_LINES: Final = 500
"""The lines of an index above which it is rewritten: one line with all entries reads faster."""


def listed(
    home: Home,
    *,
    finished: bool,
    on_damaged: Callable[[AgentctlError], None] | None = None,
) -> list[Report | Summary]:
    """List the live runs, and the *finished* ones if wanted; oldest first.

    A run whose supervisor died is finished by this.  The error of a directory that cannot be
    read is given to *on_damaged*, and does not hide the other runs.
    """
    index = home.finished
    known = index.read()
    there = home.inodes()
    # The index is mostly in order, which makes sorting cheap.
    holding = [entry for entry in known.values() if there.get(entry.id) == entry.inode]
    rows: list[Report | Summary] = [*holding] if finished else []
    for entry in holding:
        del there[entry.id]
    made = [run for run_id in there if (run := home.made(run_id)) is not None]
    missing: list[Summary] = []
    for report in _reports(made, on_damaged):
        # The report file must exist: what clients saw of a run whose supervisor does not answer
        # is not final.
        if report.finished and (home.runs_path / report.id / "report").exists():
            missing.append(summary_of(report, there[report.id]))
        if finished or not report.finished:
            rows.append(report)
    _mend(index, holding, missing)
    rows.sort(key=created_s)
    return rows


def current_report(directory: RunDirectory) -> Report:
    """Return what is known of a run now from its files.

    Raises:
        NoSuchRunError: the run was removed meanwhile.
        DamagedRunError, StateDirectoryError.
    """
    from agentctl_supervisor.recover.recovery import current

    with directory.while_there():
        return current(directory)


def is_ended_by_others(directory: RunDirectory) -> bool:
    """Return True if a client stopped the run in its supervisor's place and proved its end."""
    # A cheap check first, because this is called each time that a log grows.
    return os.access(directory.path / "observed", os.F_OK) and current_report(directory).finished


def created_record(directory: RunDirectory) -> Created | None:
    """Return the first record of the run's log, or None while there is none."""
    with directory.while_there():
        for record in LogReader(directory.path):
            return record.body if isinstance(record.body, Created) else None
    return None


def _reports(
    directories: list[RunDirectory], on_damaged: Callable[[AgentctlError], None] | None
) -> Iterator[Report]:
    live: dict[str, str] = {}
    rest: list[RunDirectory] = []
    for directory in directories:
        try:
            with directory.while_there():
                report = directory.read_report()
                is_held = report is None and directory.is_held()
            if report is not None:
                yield report
                continue
            created = created_record(directory) if is_held else None
        except NoSuchRunError:
            continue
        except AgentctlError as error:
            if on_damaged is not None:
                on_damaged(error)
            continue
        rest.append(directory)
        if created is not None:
            live[directory.id] = created.socket
    told: dict[str, Report] = {}
    if live:
        from agentctl_supervisor.control.status_query import live_reports

        told = live_reports(live.values())
    for directory in rest:
        try:
            # A supervisor is believed about its own runs only.
            report = told.get(directory.id) if directory.id in live else None
            yield current_report(directory) if report is None else _newest(directory, report)
        except NoSuchRunError:
            continue
        except AgentctlError as error:
            if on_damaged is not None:
                on_damaged(error)


def _newest(directory: RunDirectory, report: Report) -> Report:
    """Return *report*, which is from the run's supervisor, with the intent of a client if any.

    The supervisor may have been frozen, and may not know of that stop yet.
    """
    try:
        intent = directory.read_intent()
    except DamagedRunError:  # a run may have put the file there; that must not hide the run
        intent = None
    if intent is None:
        return report
    from agentctl_supervisor.recover.stop_seen_by_client import with_intent

    return with_intent(report, intent)


def _mend(index: FinishedIndex, holding: list[Summary], missing: list[Summary]) -> None:
    """Add the *missing* entries to the index; rewrite it if it has many lines."""
    if index.lines > _MANY_LINES:
        missing = [*holding, *missing]
        index.rewrite(sorted(missing, key=created_s))
    else:
        index.add(sorted(missing, key=created_s))
