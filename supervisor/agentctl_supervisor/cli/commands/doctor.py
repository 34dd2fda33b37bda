"""Implements ``agentctl doctor``: prints a line for each thing that protects runs here."""

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import Final

from agentctl_protocol.report import SCHEMA
from agentctl_supervisor.cli.parser import Parser, command_parser
from agentctl_supervisor.cli.terminal.console import coloured, line_width, out, out_json, plain
from agentctl_supervisor.doctor.check import Check
from agentctl_supervisor.doctor.checks import judge
from agentctl_supervisor.doctor.facts import find_out

_COLOURS: Final = {"ok": "green", "warn": "yellow", "fail": "red"}
_INDENT: Final = " " * 6


def parser() -> Parser:
    """Return the parser of the command's options."""
    return command_parser(
        "doctor",
        "[OPTIONS]",
        "Check what can protect runs on this machine. A line for each thing: ok, warn or\n"
        "fail; where it is not well, what follows from that, and what to do about it.\n"
        "What can be tried is tried, in throwaway processes.",
        "exit code: 0, or 1 if something fails.",
        examples=(
            "agentctl doctor",
            "agentctl doctor -o json | jq '.checks[] | select(.status != \"ok\")'",
            "sudo agentctl doctor",
        ),
    )


def run(options: argparse.Namespace) -> int:
    """Execute the command."""
    checks = judge(find_out(os.environ))
    failed = any(check.status == "fail" for check in checks)
    if options.format == "json":
        out_json({"schema": SCHEMA, "ok": not failed, "checks": checks})
    else:
        out("\n".join(page(checks, line_width())))
    return 1 if failed else 0


def page(checks: Sequence[Check], columns: int) -> list[str]:
    """Return the lines, none wider than *columns* except commands to paste."""
    lines = [line for check in checks for line in _lines(check, columns)]
    counts = {status: sum(check.status == status for check in checks) for status in _COLOURS}
    warnings = f"{counts['warn']} warning{'' if counts['warn'] == 1 else 's'}"
    return [*lines, f"{counts['ok']} ok, {warnings}, {counts['fail']} failed"]


def _lines(check: Check, columns: int) -> Iterator[str]:
    from textwrap import wrap

    status = coloured(check.status.ljust(4), _COLOURS[check.status], 1)
    first, *more = wrap(plain(f"{check.name}: {check.detail}"), columns - len(_INDENT)) or [""]
    yield f"{status}  {first}"
    for line in more:
        yield _INDENT + line
    for line in wrap(plain(check.consequence), columns - len(_INDENT)):
        yield _INDENT + line
    for number, way in enumerate(check.fix.splitlines()):
        # Not wrapped, so that it can be pasted.
        yield f"{_INDENT}{'or: ' if number else 'fix:'} {plain(way)}"
