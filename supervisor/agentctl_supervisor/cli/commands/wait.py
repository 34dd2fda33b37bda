"""Implements ``agentctl wait``: waits until runs have ended, and prints a line for each."""

import argparse
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from agentctl_protocol.report import SCHEMA, Report
from agentctl_protocol.vocabulary import EXIT_LIMIT, EXIT_OK
from agentctl_supervisor.cli import tell_error
from agentctl_supervisor.cli.parser import DURATION, Parser, command_parser
from agentctl_supervisor.cli.terminal.console import out, out_json, say
from agentctl_supervisor.cli.wording.phrases import called, outcome, summary
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import AgentctlError, UsageError
from agentctl_supervisor.observe.wait_runs import ends
from agentctl_supervisor.processes.signal_wakeup import remember_interrupts
from agentctl_supervisor.store.run_directory import RunDirectory
from agentctl_supervisor.text.durations import parse_duration, show_duration

_EXIT_TIMED_OUT: Final = EXIT_LIMIT


def parser() -> Parser:
    """Return the parser of the command's options."""
    made = command_parser(
        "wait",
        "[OPTIONS] RUN...",
        "Wait until runs have ended, and print a line for each. Waiting ends with the\n"
        "waiter: neither --timeout nor Ctrl-C does anything to the runs.",
        f"{DURATION}.\n"
        "exit code: 0 when they have ended, 124 after --timeout, 4 if there is no such\n"
        "run; with --exit-status that of the first run, as they are named, whose own code\n"
        "is not 0.",
        examples=(
            "agentctl wait nightly",
            "agentctl wait --any --timeout 10m one two three",
            "agentctl wait --exit-status nightly && ./publish.sh",
        ),
        as_json="print the reports as JSON",
    )
    add = made.add_argument
    add("runs", nargs="*", metavar="RUN", help=argparse.SUPPRESS)
    add("--any", action="store_true", help="until the first of them has ended")
    add("--timeout", metavar="DUR", help="wait no longer than this")
    add("--exit-status", action="store_true", help="end with the exit code of the run")
    return made


def run(options: argparse.Namespace) -> int:
    """Execute the command."""
    remember_interrupts()
    if not options.runs:
        raise UsageError(
            "which run is to be waited for?", hint="agentctl wait RUN; agentctl ps lists them"
        )
    timeout_s = None if options.timeout is None else parse_duration(options.timeout, "--timeout")
    as_json = options.format == "json"
    client = Client()
    directories, errors = _found(client, options.runs)
    ended: dict[str, Report] = {}
    try:
        if not errors:
            for report in ends(list(directories.values()), timeout_s):
                ended[report.id] = report
                if not as_json:
                    out(summary(report, datetime.now(UTC)))
                if options.any:
                    break
    except KeyboardInterrupt:
        say("left before the end; the runs go on")
        raise
    still = [] if errors or (options.any and ended) else [i for i in directories if i not in ended]
    if as_json:
        out_json({"schema": SCHEMA, "timed_out": bool(still), "runs": list(ended.values())})
    else:
        for run_id in still:
            report = client.show(run_id)
            out(f"{called(report)} still {outcome(report)} after {show_duration(timeout_s or 0)}")
    if errors:
        return errors[0].exit_code
    if still:
        return _EXIT_TIMED_OUT
    if not options.exit_status:
        return EXIT_OK
    return _first_failure(ended[i] for i in directories if i in ended)


def _found(
    client: Client, refs: Iterable[str]
) -> tuple[dict[str, RunDirectory], list[AgentctlError]]:
    """Return the directories by run id, and an error for each of *refs* that is not a run."""
    found: dict[str, RunDirectory] = {}
    errors: list[AgentctlError] = []
    for ref in refs:
        try:
            directory = client.directory(ref)
            found[directory.id] = directory
        except AgentctlError as error:
            tell_error(error)
            errors.append(error)
    return found, errors


def _first_failure(reports: Iterable[Report]) -> int:
    codes = (report.process_exit_code for report in reports)
    return next((code for code in codes if code != EXIT_OK), EXIT_OK)
