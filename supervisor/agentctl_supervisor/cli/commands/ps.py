"""Implements ``agentctl ps``: lists the runs in a table, as ids, or as JSON."""

import argparse
import gc
import time
from collections.abc import Sequence
from typing import Any, Final

from agentctl_protocol.report import Report
from agentctl_supervisor.cli.terminal.console import (
    clip,
    labelled,
    line_width,
    out,
    out_json,
    say,
    width,
)
from agentctl_supervisor.cli.wording.phrases import outcome
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import AgentctlError
from agentctl_supervisor.store.finished_index import Summary, created_s
from agentctl_supervisor.text.durations import show_age

_NAME_COLUMNS: Final = 20


def run(options: argparse.Namespace) -> int:
    """Execute the command."""
    gc.disable()  # all objects are needed to the end, and garbage collection takes 1/3 of the time
    reports = Client().listed(finished=options.all, on_damaged=_warn)
    reports.reverse()  # most people look for the newest run
    now_s = time.time()
    if options.format == "json":
        out_json([row(report, now_s) for report in reports])
    elif options.ids:
        if reports:
            out("\n".join(report.id for report in reports))
    else:
        out("\n".join(table(reports, now_s, line_width())))
    return 0


def _warn(error: AgentctlError) -> None:
    say(labelled("warning", str(error)))


def row(report: Report | Summary, now_s: float) -> dict[str, Any]:
    """Return the fields of *report* for the JSON list."""
    return {
        "id": report.id,
        "name": report.name,
        "state": report.state,
        "result": report.result,
        "reason": report.reason,
        "age_s": round(_age_s(report, now_s), 3),
        "command": report.command,
    }


def table(reports: Sequence[Report | Summary], now_s: float, columns: int) -> list[str]:
    """Return the lines of the table, none wider than *columns*."""
    ages = [show_age(_age_s(report, now_s)) for report in reports]
    longest_age = max(map(len, ("AGE", *ages)))
    cells = (
        _padded(["NAME", *(clip(report.name or "-", _NAME_COLUMNS) for report in reports)]),
        _padded(["ID", *(report.id for report in reports)]),
        _padded(["STATE", *(outcome(report) for report in reports)]),
        [age.rjust(longest_age) for age in ("AGE", *ages)],
    )
    left = ["  ".join(row) for row in zip(*cells, strict=True)]
    room = columns - width(left[0]) - 2
    commands = ("COMMAND", *(report.command for report in reports))
    return [
        f"{front}  {clip(command, room)}".rstrip()
        for front, command in zip(left, commands, strict=True)
    ]


def _padded(cells: list[str]) -> list[str]:
    """Return *cells*, which must be plain text, padded to the width of the widest."""
    if "".join(cells).isascii():
        widest = max(map(len, cells))
        return [cell.ljust(widest) for cell in cells]
    widest = max(map(width, cells))
    return [cell + " " * (widest - width(cell)) for cell in cells]


def _age_s(report: Report | Summary, now_s: float) -> float:
    return max(now_s - created_s(report), 0.0)
