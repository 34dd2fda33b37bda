"""``agentctl deny``: refuse a call that waits for approval."""

import argparse

from agentctl_supervisor.cli.parser import Parser
from agentctl_supervisor.cli.verdict import give, verdict_parser
from agentctl_supervisor.client import Client


def parser() -> Parser:
    """What the command takes."""
    made = verdict_parser(
        "deny",
        "Refuse a call that waits for approval; the run goes on and is told why.",
        (
            "agentctl deny nightly",
            "agentctl deny nightly c7 --reason 'not on a Friday'",
            "agentctl deny --all nightly",
        ),
    )
    made.add_argument("--reason", metavar="TEXT", default="", help="why, for the agent and the log")
    return made


def run(options: argparse.Namespace) -> int:
    """Executes the command."""

    def deny(client: Client, ref: str, call: str) -> str:
        return client.deny(ref, call, reason=options.reason)

    return give(options, "deny", deny)
