"""Makes the argument parser of a command, with the common options and the layout of the help."""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Final, NoReturn

from agentctl_supervisor.errors import UsageError

DURATION: Final = "a DUR is 500ms, 30s, 2m or 1h30m; a bare number is seconds"

# Two fewer than a usual terminal has.  A fixed width, because argparse imports shutil to find the
# real one.
_COLUMNS: Final = 78


class Parser(argparse.ArgumentParser):
    """An argument parser that raises `UsageError` instead of printing the usage and exiting."""

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError`; argparse calls this for an invalid command line."""
        raise UsageError(message, hint=f"agentctl help {self.prog.rpartition(' ')[2]}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:  # noqa: ARG002
        """Raise `UsageError`; argparse calls this to end the process."""
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
    """Return a parser for *command* that has only the options ``-h`` and ``-o``.

    The first of *formats* is the default; *as_json* describes what the last one prints.
    """
    parser = Parser(
        prog=f"agentctl {command}",
        usage=f"agentctl {command} {usage}",
        description=description,
        epilog="\n\n".join(filter(None, (epilog, _shown(examples)))),
        # Otherwise "--re" would change its meaning when a second such option is added.
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
