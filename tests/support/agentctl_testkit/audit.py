"""Reads every event log that a test made, and says where one breaks a promise.

Written from ``docs/protocol.md`` alone, without the code that wrote the logs.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

_SEGMENT: Final = struct.Struct(">8sII")
_RECORD: Final = struct.Struct(">IIQQB")
_SUPERVISOR: Final = 0


def audit(directory: Path) -> list[str]:
    """What is wrong with the logs anywhere under *directory*, one line each.

    Promises: sequence numbers have no gap; there is at most one ``stop``; after it nothing is
    granted; every granted call was asked for, once; nothing follows ``end``.
    """
    runs = {path.parent for path in directory.rglob("0*.log")}
    return [f"{run.name}: {fault}" for run in sorted(runs) for fault in _faults(run)]


def _faults(run: Path) -> Iterator[str]:
    due = 1
    asked: set[str] = set()
    granted: set[str] = set()
    before: set[str] = set()
    for sequence, by, body in _records(run):
        kind = body["type"]
        if sequence != due:
            yield f"record {sequence} ({kind}) where {due} was due"
        due = sequence + (len(body["events"]) if kind == "events" else 1)
        if "end" in before:
            yield f"{kind} after the end"
        if by != _SUPERVISOR:
            asked |= {body["call"]} if kind == "ask" else set()
            continue
        if kind == "stop" and "stop" in before:
            yield "a second stop"
        if kind == "verdict" and body["verdict"] == "granted":
            call = body["call"]
            if "stop" in before:
                yield f"call {call} granted after the stop"
            if call not in asked or call in granted:
                yield f"call {call} granted without being asked for"
            granted.add(call)
        before.add(kind)


def _records(run: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Sequence, by and body of each record up to the first that is not whole."""
    for path in sorted(run.glob("0*.log")):
        data = path.read_bytes()
        if len(data) < _SEGMENT.size:
            return
        start = _SEGMENT.size + _SEGMENT.unpack_from(data)[2]
        while start + _RECORD.size <= len(data):
            length, crc, sequence, _time, by = _RECORD.unpack_from(data, start)
            end = start + _RECORD.size + length
            if end > len(data) or zlib.crc32(data[start + 8 : end]) != crc:
                return
            yield sequence, by, msgspec.msgpack.decode(data[start + _RECORD.size : end])
            start = end
