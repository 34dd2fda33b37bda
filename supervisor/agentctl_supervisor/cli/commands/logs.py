"""Implements ``agentctl logs``: prints what a run wrote to stdout and stderr."""

import argparse
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from agentctl_protocol.records import Output, Record
from agentctl_supervisor.cli.parser import Parser, command_parser
from agentctl_supervisor.cli.terminal.console import is_terminal, plain, say, wants_colour
from agentctl_supervisor.cli.terminal.output_sanitizer import HarmlessOutput
from agentctl_supervisor.cli.terminal.raw_output import write_all
from agentctl_supervisor.cli.wording.phrases import called, summary
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import UsageError
from agentctl_supervisor.observe.follow import Following
from agentctl_supervisor.processes.signal_wakeup import remember_interrupts
from agentctl_supervisor.store.log_places import Tail, tail
from agentctl_supervisor.store.log_reader import BEGINNING

_LABELS: Final = {"stdout": "out", "stderr": "err", "both": "all"}
_LONGEST_LINE: Final = 1 << 16
_GATHERED_BYTES: Final = 1 << 18


def parser() -> Parser:
    """Return the parser of the command's options."""
    made = command_parser(
        "logs",
        "[OPTIONS] RUN",
        "Print what a run wrote to its stdout and stderr, in the order in which it was\n"
        "read. Where one terminal, file or pipe took both, that is the order in which it\n"
        "was written; between two streams no pipe keeps one.\n"
        "On a terminal, control sequences other than colours are taken out; elsewhere the\n"
        "bytes are those that the run wrote.",
        "With -f it ends when the run ends. Ctrl-C leaves the run alone.\n"
        "exit code: 0, or 4 if there is no such run.",
        examples=(
            "agentctl logs nightly",
            "agentctl logs -f -n 20 --timestamps nightly",
            "agentctl logs nightly | grep -i error",
        ),
        formats=(),
    )
    add = made.add_argument
    add("runs", nargs="*", metavar="RUN", help=argparse.SUPPRESS)
    add("-f", "--follow", action="store_true", help="go on until the run ends")
    add("-n", "--lines", metavar="N", help="only the last N lines (and what follows)")
    add("--timestamps", action="store_true", help="time and stream before each line")
    add("--raw", action="store_true", help="the bytes as they were, on a terminal, too")
    return made


def run(options: argparse.Namespace) -> int:
    """Execute the command."""
    remember_interrupts()
    if len(options.runs) != 1:
        raise UsageError(
            "whose output is to be printed?", hint="agentctl logs RUN; agentctl ps -a lists them"
        )
    if options.raw and options.timestamps:
        raise UsageError("--raw and --timestamps exclude each other", hint="leave one out")
    lines = None if options.lines is None else _count(options.lines)
    client = Client()
    directory = client.directory(options.runs[0])
    begin = Tail(BEGINNING, 0)
    if lines is not None:
        with directory.while_there():
            begin = tail(directory.path, directory.id, lines)
    shown = _Shown(options.raw, options.timestamps, begin.lines_before)
    records = Following(directory, start=begin.start, follow=options.follow, pause=shown.flush)
    try:
        for record in records:
            shown.take(record)
        shown.end()
    except KeyboardInterrupt:
        shown.end()
        say(f"the run goes on; agentctl stop {directory.id} stops it")
        raise
    for note in records.damaged:
        say(f"warning: {directory.id}: {plain(note)}")
    if options.follow and is_terminal(2):
        report = client.show(directory.id)
        say(f"-- {called(report)} is over: {summary(report, datetime.now(UTC))} --")
    return 0


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 12:
        raise UsageError(
            f"-n: not a number of lines: {text[:40]!r}", hint="agentctl logs -n 20 RUN"
        )
    return int(text)


class _Shown:
    """A writer of output to stdout, in the requested form and in big pieces."""

    def __init__(self, raw: bool, timestamps: bool, lines_before: int) -> None:
        terminal = os.isatty(1)
        self._skip = lines_before
        self._gathered = bytearray()
        self._lines: dict[str, _Lines] = {}
        self._filters: dict[str, HarmlessOutput] = {}
        stamp = _local_time if terminal else _utc
        if terminal and not raw:
            colours = wants_colour(1)
            self._filters = {stream: HarmlessOutput(colours=colours) for stream in _LABELS}
        if timestamps:
            self._lines = {stream: _Lines(stamp, label) for stream, label in _LABELS.items()}

    def take(self, record: Record) -> None:
        """Show *record*, if it is output."""
        body = record.body
        if type(body) is not Output:
            return
        data, stream = body.data, "both" if body.both else body.stream
        if self._skip:
            data = self._behind_skipped(data)
        if self._filters:
            data = self._filters[stream].feed(data).encode()
        if self._lines:
            data = self._lines[stream].feed(data, record.time_ns)
        self._gathered += data
        if len(self._gathered) >= _GATHERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the collected data."""
        data = bytes(self._gathered)
        self._gathered.clear()
        write_all(1, data)

    def end(self) -> None:
        """Write the rest."""
        for stream in _LABELS:
            data = b""
            if self._filters:
                data = self._filters[stream].end().encode()
            if self._lines:
                data = self._lines[stream].end(data)
            self._gathered += data
        self.flush()

    def _behind_skipped(self, data: bytes) -> bytes:
        newlines = data.count(b"\n")
        if newlines < self._skip:
            self._skip -= newlines
            return b""
        at = -1
        while self._skip:
            at = data.index(b"\n", at + 1)
            self._skip -= 1
        return data[at + 1 :]


class _Lines:
    """A filter that puts the time and stream before each line of one stream."""

    def __init__(self, stamp: Callable[[int], str], label: str) -> None:
        self._stamp = stamp
        self._label = label
        self._begun = b""

    def feed(self, data: bytes, time_ns: int) -> bytes:
        """Take *data*; return the lines that are complete now.  Very long lines are cut."""
        front = f"{self._stamp(time_ns)} {self._label}  ".encode()
        *whole, rest = data.split(b"\n")
        out = []
        for line in whole:
            out.append((self._begun or front) + line + b"\n")
            self._begun = b""
        if rest:
            self._begun = (self._begun or front) + rest
        if len(self._begun) > _LONGEST_LINE:
            out.append(self._begun + b"\n")
            self._begun = b""
        return b"".join(out)

    def end(self, rest: bytes) -> bytes:
        """Return the last line, if it has no newline."""
        begun, self._begun = self._begun, b""
        return begun + rest + b"\n" if begun else rest


def _local_time(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns / 1e9):%H:%M:%S.%f}"[:-3]  # noqa: DTZ006 - for people here


def _utc(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns / 1e9, UTC):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
