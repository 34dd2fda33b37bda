"""Implements ``agentctl prune``: deletes finished runs."""

import argparse
import os
import time
from collections.abc import Sequence

from agentctl_protocol.report import SCHEMA, Report
from agentctl_supervisor.cli import tell_error
from agentctl_supervisor.cli.parser import DURATION, Parser, command_parser
from agentctl_supervisor.cli.terminal.console import (
    clip,
    line_width,
    out,
    out_json,
    plain,
    say,
)
from agentctl_supervisor.cli.wording.phrases import called, outcome, show_size
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import AgentctlError, UsageError
from agentctl_supervisor.store.finished_index import Summary, ended_s
from agentctl_supervisor.store.pruning import (
    Candidate,
    Wanted,
    candidates,
    chosen,
    clean_up,
    remove,
)
from agentctl_supervisor.store.run_directory import Home
from agentctl_supervisor.text.durations import parse_duration, show_age
from agentctl_supervisor.text.sizes import parse_size

_SHOWN = 20


def parser() -> Parser:
    """Return the parser of the command's options."""
    made = command_parser(
        "prune",
        "[OPTIONS]",
        "Delete finished runs, with their logs and reports; never one that lives.\n"
        "A run goes if any of the options says so. On a terminal nothing is deleted\n"
        "without --yes: what would be is listed.",
        f"{DURATION}.\n"
        "a SIZE is 500M or 2G; a bare number is bytes.\n"
        "exit code: 0, or 1 if a run could not be deleted.",
        examples=(
            "agentctl prune --older 7d",
            "agentctl prune --keep 100 --max-size 2G --yes",
            "agentctl prune --keep 0 --dry-run",
        ),
    )
    add = made.add_argument
    add("--older", metavar="DUR", help="those that ended longer ago than this")
    add("--keep", metavar="N", help="all but the N that ended last")
    add("--max-size", metavar="SIZE", help="the oldest, until the rest takes no more")
    add("--dry-run", action="store_true", help="only list them")
    add("--yes", action="store_true", help="delete, on a terminal, too")
    return made


def run(options: argparse.Namespace) -> int:
    """Execute the command."""
    if options.dry_run and options.yes:
        raise UsageError("--dry-run and --yes exclude each other", hint="leave one out")
    now_s = time.time()
    wanted = _wanted(options, now_s)
    home = Home.open(create=False)
    runs = Client().listed(finished=True, on_damaged=tell_error)
    going = chosen(candidates(home, [run for run in runs if run.finished]), wanted)
    is_dry = options.dry_run or (os.isatty(1) and not options.yes)
    gone, errors = (going, []) if is_dry else _remove(home, going)
    if options.format == "json":
        out_json(_told(gone, errors, is_dry))
        return 1 if errors else 0
    for candidate in gone[:_SHOWN]:
        out(_line(candidate, now_s))
    if len(gone) > _SHOWN:
        out(f"and {len(gone) - _SHOWN} more")
    for error in errors:
        tell_error(error)
    count = "1 run" if len(gone) == 1 else f"{len(gone)} runs"
    size = show_size(sum(candidate.bytes for candidate in gone))
    out(f"{'would delete' if is_dry else 'deleted'} {count}, {size}")
    if is_dry and gone and not options.dry_run:
        say("hint: nothing is deleted yet; add --yes")
    return 1 if errors else 0


def _wanted(options: argparse.Namespace, now_s: float) -> Wanted:
    if options.older is None and options.keep is None and options.max_size is None:
        raise UsageError("which runs are to go?", hint="agentctl prune --older 7d, or --keep 100")
    keep = None
    if options.keep is not None:
        if not options.keep.isascii() or not options.keep.isdecimal() or len(options.keep) > 9:
            raise UsageError(f"--keep: not a number of runs: {options.keep[:40]!r}")
        keep = int(options.keep)
    before_s = None
    if options.older is not None:
        before_s = now_s - parse_duration(options.older, "--older")
    max_bytes = None
    if options.max_size is not None:
        max_bytes = parse_size(options.max_size, "--max-size")
    return Wanted(before_s, keep, max_bytes)


def _remove(home: Home, going: Sequence[Candidate]) -> tuple[list[Candidate], list[AgentctlError]]:
    gone: list[Candidate] = []
    errors: list[AgentctlError] = []
    for candidate in going:
        try:
            if remove(home, candidate.run.id):
                gone.append(candidate)
        except AgentctlError as error:
            errors.append(error)
    clean_up(home)
    return gone, errors


def _line(candidate: Candidate, now_s: float) -> str:
    run: Report | Summary = candidate.run
    age = show_age(now_s - ended_s(run))
    size = show_size(candidate.bytes)
    name = f"  {called(run)}" if run.name else ""
    return clip(f"{run.id}  {age:>4}  {size:>9}  {outcome(run)}{name}", line_width())


def _told(gone: Sequence[Candidate], errors: Sequence[AgentctlError], is_dry: bool) -> object:
    return {
        "schema": SCHEMA,
        "dry_run": is_dry,
        "runs": [{"id": one.run.id, "name": one.run.name, "bytes": one.bytes} for one in gone],
        "bytes": sum(one.bytes for one in gone),
        "errors": [{"error": plain(str(error)), "hint": error.hint} for error in errors],
    }
