"""Implements ``agentctl export``: writes a run to one tar file."""

import argparse
import os
import sys
from typing import BinaryIO

from agentctl_supervisor.cli.parser import Parser, command_parser
from agentctl_supervisor.cli.terminal.console import plain, say
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import AgentctlError, UsageError


def parser() -> Parser:
    """Return the parser of the command's options."""
    made = command_parser(
        "export",
        "[OPTIONS] RUN",
        "Write a run's spec, log, report and the artifacts that it named to a tar file.\n"
        "Links, devices, FIFOs and set-uid files among the artifacts are left out, and\n"
        "MANIFEST.json says so. Environment values are in none of it.",
        "exit code: 0, or 4 if there is no such run.",
        examples=(
            "agentctl export nightly",
            "agentctl export -f nightly.tar nightly",
            "agentctl export -f - r-7k2m9qab | ssh host tar -x",
        ),
        formats=(),
    )
    made.add_argument("runs", nargs="*", metavar="RUN", help=argparse.SUPPRESS)
    made.add_argument("-f", dest="file", metavar="FILE|-", help="where to (default: ID.tar here)")
    return made


def run(options: argparse.Namespace) -> int:
    """Execute the command."""
    if len(options.runs) != 1:
        raise UsageError("which run is to be exported?", hint="agentctl export RUN")
    directory = Client().directory(options.runs[0])
    if options.file == "-":
        if sys.stdout.isatty():
            raise UsageError("a tar file is nothing for a terminal", hint="export -f FILE")
        _write(directory.id, options, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return 0
    path = options.file or f"{directory.id}.tar"
    try:
        # Never overwrite an existing file: a typing error could destroy it.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"{path[:200]} exists", hint="-f names another file") from None
    except OSError as error:
        raise AgentctlError(f"cannot write {path[:200]}: {error.strerror}") from None
    try:
        with open(fd, "wb") as file:
            _write(directory.id, options, file)
    except BaseException:
        os.unlink(path)  # an incomplete bundle looks like a complete one
        raise
    say(f"{plain(options.runs[0])}: written to {plain(path)}")
    return 0


def _write(run_id: str, options: argparse.Namespace, out: BinaryIO) -> None:
    from agentctl_supervisor.export.bundle import write_bundle

    manifest = write_bundle(Client().directory(run_id), out)
    for line in manifest.left_out:
        say(f"warning: {plain(options.runs[0])}: left out: {plain(line)}")
