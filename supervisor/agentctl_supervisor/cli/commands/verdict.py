"""Gives the user's verdict on calls that wait for approval; shared by ``approve`` and ``deny``."""

import argparse
from collections.abc import Sequence
from typing import Final, Protocol

from agentctl_protocol.report import Report, WaitingCall
from agentctl_supervisor.cli.parser import Parser, command_parser
from agentctl_supervisor.cli.terminal.console import out, plain
from agentctl_supervisor.cli.wording.waiting_calls import lines
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import NotWaitingError, UsageError

_DIGITS: Final = 9
_LISTED: Final = 5


class Verdict(Protocol):
    """A function that gives a verdict on one call of a run, or on all calls up to a number.

    It returns what was done, as text for people.
    """

    def __call__(self, ref: str, call: str | int = "", *, up_to: int = 0) -> str:
        """See `Client.approve`."""


def verdict_parser(command: str, purpose: str, examples: tuple[str, ...]) -> Parser:
    """Return a parser for *command*, whose operands are a run and the number of a call."""
    made = command_parser(
        command,
        "[OPTIONS] RUN [NUMBER]",
        f"{purpose}\n"
        "NUMBER may be left out when one call waits; agentctl show RUN lists them. What\n"
        "is no number is taken for the id that the agent gave to the call.",
        "exit code: 0, 1 if no such call waits (any more), 4 if there is no such run.",
        examples=examples,
        formats=(),
    )
    made.add_argument("runs", nargs="*", metavar="RUN", help=argparse.SUPPRESS)
    made.add_argument(
        "--all", action="store_true", help="list the calls that wait now, and decide on those"
    )
    return made


def give(options: argparse.Namespace, verb: str, client: Client, verdict: Verdict) -> int:
    """Give *verdict* on the calls that *options* name; return the exit code."""
    words = options.runs
    if not words or len(words) > 2 or (options.all and len(words) == 2):
        raise UsageError(f"which call is it to {verb}?", hint=f"agentctl {verb} RUN [NUMBER]")
    ref = words[0]
    report = client.show(ref)
    numbered = all(call.number for call in report.waiting)
    if len(words) == 2:
        call = _call(words[1], numbered=numbered)
        out(plain(f"{ref}: {call or repr(call)}: {verdict(ref, call)}"))
        return 0
    calls = _waiting(report, every=options.all)
    # Print the calls before the verdict: if that fails, nothing is decided.
    for line in lines(calls):
        out(plain(f"{ref}: {line}"))
    if numbered:
        # Only up to the last shown number: the user has not seen calls that came since.
        out(plain(f"{ref}: {verdict(ref, up_to=calls[-1].number)}"))
    else:
        for one in calls:
            out(plain(f"{ref}: {verdict(ref, one.id)}"))
    return 0


def _call(word: str, *, numbered: bool) -> str | int:
    """Return the call that *word* means.

    If the calls are *numbered*, digits mean a number of the supervisor, even if an agent gave a
    call an id of the same digits.
    """
    if numbered and word.isascii() and word.isdecimal() and len(word) <= _DIGITS:
        return int(word)
    return word


def _waiting(report: Report, *, every: bool) -> Sequence[WaitingCall]:
    shown = report.name or report.id
    calls = report.waiting
    if not calls:
        raise NotWaitingError(f"no call of {shown} waits for approval", f"agentctl show {shown}")
    if len(calls) > 1 and not every:
        told = list(lines(calls))
        more = (f"and {len(told) - _LISTED} more",) if len(told) > _LISTED else ()
        raise UsageError(
            f"{len(calls)} calls of {shown} wait: {'; '.join((*told[:_LISTED], *more))}",
            hint="name one by its number, or --all",
        )
    return calls
