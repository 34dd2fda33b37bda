"""Implements ``agentctl deny``: refuses a call that waits for approval."""

import argparse
from functools import partial

from agentctl_supervisor.cli.commands.verdict import give, verdict_parser
from agentctl_supervisor.cli.parser import Parser
from agentctl_supervisor.client import Client


def parser() -> Parser:
    """Return the parser of the command's options."""
    made = verdict_parser(
        "deny",
        "Refuse a call that waits for approval; the run goes on and is told why.",
        (
            "agentctl deny nightly",
            "agentctl deny nightly 7 --reason 'not on a Friday'",
            "agentctl deny --all nightly",
        ),
    )
    made.add_argument("--reason", metavar="TEXT", default="", help="why, for the agent and the log")
    return made


def run(options: argparse.Namespace) -> int:
    """Execute the command."""
    client = Client()
    return give(options, "deny", client, partial(client.deny, reason=options.reason))
