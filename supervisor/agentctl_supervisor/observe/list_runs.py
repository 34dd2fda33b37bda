"""What is known of runs now, for those who look at many of them at once."""

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
"""Of an index: they take longer to read than one line of as many entries."""


def listed(
    home: Home,
    *,
    finished: bool,
    on_damaged: Callable[[AgentctlError], None] | None = None,
) -> list[Report | Summary]:
    """What a list shows of the live runs, and of the *finished* ones if wanted; oldest first.

    Runs whose supervisor died are finished on the way.  A directory that cannot be read is
    given to *on_damaged* and does not hide the others.
    """
    index = home.finished
    known = index.read()
    there = home.inodes()
    # Mostly in order, which makes sorting cheap.
    holding = [entry for entry in known.values() if there.get(entry.id) == entry.inode]
    rows: list[Report | Summary] = [*holding] if finished else []
    for entry in holding:
        del there[entry.id]
    made = [run for run_id in there if (run := home.made(run_id)) is not None]
    missing: list[Summary] = []
    for report in _reports(made, on_damaged):
        # What others saw of a run whose supervisor does not answer is not its last word.
        if report.finished and (home.runs_path / report.id / "report").exists():
            missing.append(summary_of(report, there[report.id]))
        if finished or not report.finished:
            rows.append(report)
    _mend(index, holding, missing)
    rows.sort(key=created_s)
    return rows


def current_report(directory: RunDirectory) -> Report:
    """What is known of a run now, out of its files.

    Raises:
        NoSuchRunError: it was removed meanwhile.
        DamagedRunError, StateDirectoryError.
    """
    from agentctl_supervisor.recover.recovery import current

    with directory.while_there():
        return current(directory)


def is_ended_by_others(directory: RunDirectory) -> bool:
    """Whether the run was proven gone by somebody who stopped it in its supervisor's place."""
    # Looked at first: it is asked for at each growth of a log.
    return os.access(directory.path / "observed", os.F_OK) and current_report(directory).finished


def created_record(directory: RunDirectory) -> Created | None:
    """The first record of the run's log, or None while there is none."""
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
            # A supervisor has the last word about its own runs only.
            report = told.get(directory.id) if directory.id in live else None
            yield current_report(directory) if report is None else _newest(directory, report)
        except NoSuchRunError:
            continue
        except AgentctlError as error:
            if on_damaged is not None:
                on_damaged(error)


def _newest(directory: RunDirectory, report: Report) -> Report:
    """*report*, told by the run's supervisor, which was frozen and may not know of a stop yet."""
    try:
        intent = directory.read_intent()
    except DamagedRunError:  # what a run may have put there hides no run
        intent = None
    if intent is None:
        return report
    from agentctl_supervisor.recover.stop_seen_by_client import with_intent

    return with_intent(report, intent)


def _mend(index: FinishedIndex, holding: list[Summary], missing: list[Summary]) -> None:
    """Add to the index what it lacks; write it anew once it has many lines."""
    if index.lines > _MANY_LINES:
        missing = [*holding, *missing]
        index.rewrite(sorted(missing, key=created_s))
    else:
        index.add(sorted(missing, key=created_s))
