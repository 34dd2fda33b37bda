"""One parser for each command: how its options are declared and how its help looks."""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Final, NoReturn

from agentctl_supervisor.errors import UsageError

DURATION: Final = "a DUR is 500ms, 30s, 2m or 1h30m; a bare number is seconds"

_COLUMNS: Final = 78  # two fewer than a terminal has; argparse imports shutil to find out


class Parser(argparse.ArgumentParser):
    """Raises where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        """What argparse calls for a command line that makes no sense."""
        raise UsageError(message, hint=f"agentctl help {self.prog.rpartition(' ')[2]}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:  # noqa: ARG002
        """What argparse calls to leave."""
        self.error(message or "wrong use")


def command_parser(
    command: str,
    usage: str,
    description: str,
    epilog: str = "",
    *,
    examples: Sequence[str] = (),
    formats: Sequence[str] = ("text", "json"),
    as_json: str = "print JSON",
) -> Parser:
    """A parser for *command* without options of its own yet, but ``-h`` and ``-o``.

    The first of *formats* is the default; *as_json* says what the last one prints.
    """
    parser = Parser(
        prog=f"agentctl {command}",
        usage=f"agentctl {command} {usage}",
        description=description,
        epilog="\n\n".join(filter(None, (epilog, _shown(examples)))),
        # "--re" must not come to mean something else once there is a second such option.
        allow_abbrev=False,
        add_help=False,
        formatter_class=partial(argparse.RawDescriptionHelpFormatter, width=_COLUMNS),
    )
    parser.add_argument("-h", "--help", action="store_true", help=argparse.SUPPRESS)
    if formats:
        parser.add_argument(
            "-o",
            dest="format",
            choices=formats,
            default=formats[0],
            metavar=formats[-1],
            help=as_json,
        )
    return parser


def _shown(examples: Sequence[str]) -> str:
    return "\n  ".join(("examples:", *examples)) if examples else ""
