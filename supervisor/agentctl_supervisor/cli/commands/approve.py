"""Implements ``agentctl approve``: lets a run make a call that waits for approval."""

import argparse

from agentctl_supervisor.cli.commands.verdict import give, verdict_parser
from agentctl_supervisor.cli.parser import Parser
from agentctl_supervisor.client import Client


def parser() -> Parser:
    """Return the parser of the command's options."""
    return verdict_parser(
        "approve",
        "Let a run make a call that waits for approval (agentctl run --approve).",
        (
            "agentctl approve nightly",
            "agentctl approve nightly 7",
            "agentctl approve --all nightly",
        ),
    )


def run(options: argparse.Namespace) -> int:
    """Execute the command."""
    client = Client()
    return give(options, "approve", client, client.approve)
