"""Implements ``agentctl events``: prints a run's records as JSON Lines, one object an event."""

import argparse
import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from agentctl_protocol.errors import ProtocolError
from agentctl_protocol.messages import Events
from agentctl_protocol.records import Output, Record
from agentctl_protocol.values import open_value
from agentctl_protocol.vocabulary import By
from agentctl_supervisor.cli.parser import Parser, command_parser
from agentctl_supervisor.cli.terminal.console import plain, say
from agentctl_supervisor.cli.terminal.raw_output import write_all
from agentctl_supervisor.client import Client
from agentctl_supervisor.errors import UsageError
from agentctl_supervisor.observe.follow import Following
from agentctl_supervisor.processes.signal_wakeup import remember_interrupts
from agentctl_supervisor.store.log_places import place_of
from agentctl_supervisor.store.log_reader import BEGINNING
from agentctl_supervisor.text.json_text import json_line

_GATHERED_BYTES: Final = 1 << 18
_BY: Final = {By.SUPERVISOR: "supervisor", By.CHILD: "child"}


def parser() -> Parser:
    """Return the parser of the command's options."""
    made = command_parser(
        "events",
        "[OPTIONS] RUN",
        "Print all that is known of a run as JSON Lines: one object an event, with seq,\n"
        "time, by (child: the agent's claim; supervisor: a fact), source and type first.",
        "With -f it ends when the run ends. Ctrl-C leaves the run alone. Output that is\n"
        "no UTF-8 comes as base64 instead of text.\n"
        "exit code: 0, or 4 if there is no such run.",
        examples=(
            "agentctl events nightly | jq 'select(.type == \"usage\")'",
            "agentctl events -f nightly",
            "agentctl events --since 1000 nightly",
        ),
        formats=("jsonl",),
        as_json="JSON Lines; there is no other format",
    )
    add = made.add_argument
    add("runs", nargs="*", metavar="RUN", help=argparse.SUPPRESS)
    add("-f", "--follow", action="store_true", help="go on until the run ends")
    add("--since", metavar="SEQ", help="begin with this number")
    return made


def run(options: argparse.Namespace) -> int:
    """Execute the command."""
    remember_interrupts()
    if len(options.runs) != 1:
        raise UsageError(
            "whose events are to be printed?", hint="agentctl events RUN; agentctl ps -a lists them"
        )
    since = 1 if options.since is None else _number(options.since)
    directory = Client().directory(options.runs[0])
    start = BEGINNING
    if since > 1:
        with directory.while_there():
            start = place_of(directory.path, directory.id, since)
    gathered = bytearray()

    def flush() -> None:
        data = bytes(gathered)
        gathered.clear()
        write_all(1, data)

    records = Following(directory, start=start, follow=options.follow, pause=flush)
    try:
        for record in records:
            for seq, line in lines(record):
                if seq >= since:
                    gathered += line
            if len(gathered) >= _GATHERED_BYTES:
                flush()
        flush()
    except KeyboardInterrupt:
        say(f"the run goes on; agentctl stop {directory.id} stops it")
        raise
    for note in records.damaged:
        say(f"warning: {directory.id}: {plain(note)}")
    return 0


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise UsageError(
            f"--since: not a number: {text[:40]!r}", hint="it is the seq of an event that you saw"
        )
    return int(text)


def lines(record: Record) -> Iterator[tuple[int, bytes]]:
    """Yield the number and line of each event in *record*; nothing for an unknown type."""
    body = record.body
    if isinstance(body, Events):
        for at, event in enumerate(body.events):
            yield record.seq + at, _line(record, record.seq + at, event)
    elif body is not None:
        yield record.seq, _line(record, record.seq, body)


def _line(record: Record, seq: int, body: msgspec.Struct) -> bytes:
    fields = _output(body) if isinstance(body, Output) else dict(_fields(body))
    envelope = {
        "seq": seq,
        "time": datetime.fromtimestamp(record.time_ns / 1e9, UTC),
        "by": _BY[record.by],
        "source": fields.pop("source", ""),
        "type": body.__struct_config__.tag,
    }
    return json_line(envelope | fields).encode() + b"\n"


def _fields(body: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    for name in body.__struct_fields__:
        value = getattr(body, name)
        if isinstance(value, msgspec.Raw):
            try:
                value = open_value(value, name)
            except ProtocolError as error:
                value = f"({error})"
        # A field must not replace a field of the envelope.
        yield (f"{name}_" if name in ("seq", "time", "by", "type") else name), value


def _output(body: Output) -> dict[str, Any]:
    both = {"both": True} if body.both else {}
    try:
        return {"stream": body.stream, **both, "text": body.data.decode()}
    except UnicodeDecodeError:
        return {"stream": body.stream, **both, "base64": base64.b64encode(body.data).decode()}
