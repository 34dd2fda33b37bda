"""``agentctl ps``: the runs in a table, as ids, or as JSON."""

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from agentctl_protocol.report import Report
from agentctl_supervisor.cli.durations import show_age
from agentctl_supervisor.cli.terminal import clip, line_width, out, out_json, plain, say, width
from agentctl_supervisor.cli.wording import outcome
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import AgentctlError

_NAME_COLUMNS: Final = 20


def run(options: argparse.Namespace) -> int:
    """Executes the command."""
    reports = Client().runs(finished=options.all, on_damaged=_warn)
    reports.reverse()  # the newest is what most people look for
    now = datetime.now(UTC)
    if options.format == "json":
        out_json([row(report, now) for report in reports])
    elif options.ids:
        for report in reports:
            out(report.id)
    else:
        for line in table(reports, now, line_width()):
            out(line)
    return 0


def _warn(error: AgentctlError) -> None:
    say(f"warning: {plain(str(error))}")


def row(report: Report, now: datetime) -> dict[str, Any]:
    """What is listed of *report* in JSON."""
    return {
        "id": report.id,
        "name": report.name,
        "state": report.state,
        "result": report.result,
        "reason": report.reason,
        "age_s": round(_age_s(report, now), 3),
        "command": report.command,
    }


def table(reports: Sequence[Report], now: datetime, columns: int) -> list[str]:
    """The lines of the table, none wider than *columns*."""
    cells = [("NAME", "ID", "STATE", "AGE", "COMMAND")]
    cells += [
        (
            clip(report.name or "-", _NAME_COLUMNS),
            report.id,
            outcome(report),
            show_age(_age_s(report, now)),
            plain(report.command),
        )
        for report in reports
    ]
    widths = [max(width(line[column]) for line in cells) for column in range(4)]
    lines = []
    for name, run_id, state, age, command in cells:
        left = "  ".join(
            (
                _pad(name, widths[0]),
                _pad(run_id, widths[1]),
                _pad(state, widths[2]),
                age.rjust(widths[3]),
            )
        )
        lines.append(f"{left}  {clip(command, columns - width(left) - 2)}".rstrip())
    return lines


def _pad(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))


def _age_s(report: Report, now: datetime) -> float:
    return max((now - report.created_at).total_seconds(), 0.0)
