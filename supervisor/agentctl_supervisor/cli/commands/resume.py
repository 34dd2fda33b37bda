"""Implements ``agentctl resume``: starts a new run that goes on where an old one ended."""

import argparse
import os

import msgspec

from agentctl_protocol.vocabulary import Result
from agentctl_supervisor.cli.commands import run as run_command
from agentctl_supervisor.cli.commands.rerun import renewed, tell_missing
from agentctl_supervisor.cli.parser import Parser, command_parser
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import UsageError
from agentctl_supervisor.observe.list_runs import current_report
from agentctl_supervisor.run.resuming import check_resumable


def parser() -> Parser:
    """Return the parser of the command's options."""
    made = command_parser(
        "resume",
        "[OPTIONS] RUN",
        "Start a new run that goes on where a stopped, failed or lost one ended. It gets\n"
        "the old one's settings, last checkpoint and calls (run.resumed); calls that were\n"
        "cut off are marked, since what they did is unknown.",
        "exit code: as that of agentctl run; 1 if there is nothing to go on with.",
        examples=(
            "agentctl resume nightly",
            """agentctl resume --input '"and now the second half"' nightly""",
            "agentctl resume -d --name nightly-2 r-7k2m9qab",
        ),
        as_json="print the report as JSON; the program's own stdout goes to stderr",
    )
    add = made.add_argument
    add("runs", nargs="*", metavar="RUN", help=argparse.SUPPRESS)
    add("--input", metavar="JSON|@FILE|-", help="another argument for the function")
    add("--name", help="another name for the new run")
    add("-d", dest="detach", action="store_true", help="print the id and leave it running")
    add("-q", dest="quiet", action="store_true", help="say nothing of our own")
    return made


def run(options: argparse.Namespace) -> int:
    """Execute the command; return when the new run is over or, with ``-d``, when it is running."""
    if len(options.runs) != 1:
        raise UsageError(
            "which run is to be resumed?", hint="agentctl resume RUN; agentctl ps -a lists them"
        )
    client = Client()
    directory = client.directory(options.runs[0])
    report = current_report(directory)
    spec, missing = renewed(directory.read_spec(), options.name, os.environ)
    while report.result is Result.REFUSED and report.resumes is not None:
        # A refused resume did nothing, so go on with the run that it should have resumed.
        report = current_report(client.directory(report.resumes))
    check_resumable(report)
    tell_missing(missing, options)
    spec = msgspec.structs.replace(spec, resumes=report.id)
    if options.input is not None:
        spec = msgspec.structs.replace(spec, input=run_command.read_input(options.input))
    return run_command.start(spec.checked(), options)
