"""Implements ``agentctl signal``: fires the ``external()`` termination condition of a run."""

import argparse

from agentctl_supervisor.cli.parser import Parser, command_parser
from agentctl_supervisor.cli.terminal.console import out, plain
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import UsageError


def parser() -> Parser:
    """Return the parser of the command's options."""
    made = command_parser(
        "signal",
        "RUN",
        "Fire the external() condition of a run that was started with --stop-when: it\n"
        "counts from then on, alone or together with others.",
        "exit code: 0, 1 if the run has no such condition or is over, 4 if there is none.",
        examples=(
            "agentctl signal nightly",
            "agentctl run --stop-when 'external()' --name nightly -d -- ./agent.sh",
            "agentctl signal r-7k2m9qab",
        ),
        formats=(),
    )
    made.add_argument("runs", nargs="*", metavar="RUN", help=argparse.SUPPRESS)
    return made


def run(options: argparse.Namespace) -> int:
    """Execute the command."""
    if len(options.runs) != 1:
        raise UsageError("which run is it to signal?", hint="agentctl signal RUN")
    out(plain(f"{options.runs[0]}: {Client().signal(options.runs[0])}"))
    return 0
