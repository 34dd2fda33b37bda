"""Suggests ``agentctl kill`` if earlier stops of the same command always needed SIGKILL."""

from collections.abc import Iterator, Sequence
from typing import Final

from agentctl_protocol.report import Report
from agentctl_protocol.vocabulary import Rung
from agentctl_supervisor.errors import AgentctlError
from agentctl_supervisor.store.run_directory import Home
from agentctl_supervisor.text.durations import show_duration

_LOOKED_AT: Final = 50
_USED_TO: Final = 2
"""The number of stops, this one included, that are needed for a hint."""


def stop_hint(report: Report, home: Home) -> str:
    """Return a hint on how to avoid a wait that never helps; empty if there is none."""
    if not _resisted(report):
        return ""
    try:
        return hint_after([report, *_earlier(report, home)])
    except AgentctlError:
        return ""  # the runs cannot be listed: then there is no hint


def hint_after(stops: Sequence[Report]) -> str:
    """Return the hint after these *stops* of one command; empty if one ended without SIGKILL."""
    if len(stops) < _USED_TO or not all(_resisted(stop) for stop in stops):
        return ""
    wasted_s = max((s.ladder[-1].at - s.ladder[0].at).total_seconds() for s in stops)
    return (
        f"its last {len(stops)} stops all needed SIGKILL; agentctl kill saves"
        f" {show_duration(wasted_s)}"
    )


def _earlier(report: Report, home: Home) -> Iterator[Report]:
    """Yield the stops of the same command among the newest runs, the newest first."""
    for directory in reversed(home.runs()[-_LOOKED_AT:]):
        try:
            earlier = directory.read_report() if directory.id != report.id else None
        except AgentctlError:
            continue
        if earlier is not None and earlier.command == report.command and _was_asked(earlier):
            yield earlier


def _was_asked(report: Report) -> bool:
    """Return True if the run was stopped.  A run that was killed at once does not count."""
    return bool(report.ladder) and report.ladder[0].step is not Rung.SIGKILL


def _resisted(report: Report) -> bool:
    """Return True if the run had time to end, but needed SIGKILL."""
    return _was_asked(report) and report.ladder[-1].step is Rung.SIGKILL
