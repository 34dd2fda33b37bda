"""A person's verdict on a call that waits for one: what ``approve`` and ``deny`` share."""

import argparse
from collections.abc import Callable

from agentctl_protocol.report import Report
from agentctl_supervisor.cli.parser import Parser, command_parser
from agentctl_supervisor.cli.terminal import out, plain
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import NotWaitingError, UsageError


def verdict_parser(command: str, purpose: str, examples: tuple[str, ...]) -> Parser:
    """A parser for *command*, whose operands are a run and a call of it."""
    made = command_parser(
        command,
        "[OPTIONS] RUN [CALL]",
        f"{purpose}\nCALL may be left out when one call waits; agentctl show RUN lists them.",
        "exit code: 0, 1 if no such call waits (any more), 4 if there is no such run.",
        examples=examples,
        formats=(),
    )
    made.add_argument("runs", nargs="*", metavar="RUN", help=argparse.SUPPRESS)
    made.add_argument("--all", action="store_true", help="every call of the run that waits")
    return made


def give(options: argparse.Namespace, verb: str, verdict: Callable[[Client, str, str], str]) -> int:
    """Have *verdict* given on the calls that *options* name; returns the exit code."""
    words = options.runs
    if not words or len(words) > 2 or (options.all and len(words) == 2):
        raise UsageError(f"which call is it to {verb}?", hint=f"agentctl {verb} RUN [CALL]")
    client, ref = Client(), words[0]
    calls = words[1:] or _waiting(client.show(ref), every=options.all)
    for call in calls:
        out(plain(f"{ref}: {call}: {verdict(client, ref, call)}"))
    return 0


def _waiting(report: Report, *, every: bool) -> list[str]:
    shown = report.name or report.id
    calls = [call.id for call in report.waiting]
    if not calls:
        raise NotWaitingError(f"no call of {shown} waits for approval", f"agentctl show {shown}")
    if len(calls) > 1 and not every:
        listed = ", ".join(f"{call.id} ({call.name})" for call in report.waiting[:5])
        raise UsageError(f"{len(calls)} calls of {shown} wait: {listed}", hint="name one, or --all")
    return calls
