"""Implements ``agentctl rerun``: starts a new run with the settings of an old one."""

import argparse
import os
from collections.abc import Mapping

import msgspec

from agentctl_protocol.spec import RunSpec
from agentctl_supervisor.cli.commands import run as run_command
from agentctl_supervisor.cli.parser import Parser, command_parser
from agentctl_supervisor.cli.terminal.console import plain, say
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import UsageError
from agentctl_supervisor.policy.environment import is_inherited


def parser() -> Parser:
    """Return the parser of the command's options."""
    made = command_parser(
        "rerun",
        "[OPTIONS] RUN",
        "Start a new run with the settings of an old one: the same program or function,\n"
        "arguments, input, directory, limits, tags and name. The environment is yours of\n"
        "now: its values are never stored.",
        "exit code: as that of agentctl run.",
        examples=(
            "agentctl rerun nightly",
            "agentctl rerun --name again -d r-7k2m9qab",
            "agentctl rerun -o json nightly 2>/dev/null | jq .result",
        ),
        as_json="print the report as JSON; the program's own stdout goes to stderr",
    )
    add = made.add_argument
    add("runs", nargs="*", metavar="RUN", help=argparse.SUPPRESS)
    add("--name", help="another name for the new run")
    add("-d", dest="detach", action="store_true", help="print the id and leave it running")
    add("-q", dest="quiet", action="store_true", help="say nothing of our own")
    return made


def run(options: argparse.Namespace) -> int:
    """Execute the command; return when the new run is over or, with ``-d``, when it is running."""
    if len(options.runs) != 1:
        raise UsageError(
            "which run is to be run again?", hint="agentctl rerun RUN; agentctl ps -a lists them"
        )
    old = Client().directory(options.runs[0]).read_spec()
    spec, missing = renewed(old, options.name, os.environ)
    tell_missing(missing, options)
    return run_command.start(spec.checked(), options)


def tell_missing(missing: list[str], options: argparse.Namespace) -> None:
    """Print which variables the old run had and the new run does not have."""
    if missing and not options.quiet:
        shown = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        say(f"warning: not set here, but for {plain(options.runs[0])} they were: {plain(shown)}")


def renewed(
    spec: RunSpec, name: str | None, environ: Mapping[str, str]
) -> tuple[RunSpec, list[str]]:
    """Return a spec for a new run like the stored *spec*, and the variables missing in *environ*.

    If the old run got an environment of its own, the new run gets only variables with the same
    names.
    """
    env = None
    missing: list[str] = []
    if spec.env_names:
        env = {variable: environ[variable] for variable in spec.env_names if variable in environ}
        missing = [
            variable
            for variable in spec.env_names
            # Variables that every run inherits differ between terminals: do not report them.
            if variable not in environ and not is_inherited(variable)
        ]
    new = msgspec.structs.replace(spec, env=env, env_names=(), name=name or spec.name)
    return new, missing
