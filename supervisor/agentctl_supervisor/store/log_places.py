"""Finds positions in a log without reading all of it: it tries the segments from last to first.

The header of a segment's first record holds the record's sequence number, so a reader can
begin there.  If that record cannot be read, the segment before it is used.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from agentctl_protocol.records import MAX_BODY, RECORD_HEADER, Output, crc_of, segment_header
from agentctl_supervisor.store.log_reader import (
    BEGINNING,
    LogEnd,
    LogReader,
    segment_name,
    segment_numbers,
)


class Tail(NamedTuple):
    """A position to begin at, and how many output lines come there before the wanted ones."""

    start: LogEnd
    lines_before: int


def tail(path: Path, run_id: str, lines: int) -> Tail:
    """Find a position before the last *lines* lines of the run's output.

    A last line without a newline counts as a line.  Memory does not grow with the log.
    """
    places = _beginnings(path, run_id)
    found = 0
    is_open, known = False, False
    behind: LogEnd | None = None
    for start in places:
        newlines, ends_open = _count(path, run_id, start, behind)
        if ends_open is not None and not known:
            is_open, known = ends_open, True
            found += is_open
        found += newlines
        # One more newline than wanted is needed: it ends the line before the wanted ones.
        if found > lines or start == BEGINNING:
            return Tail(start, max(found - lines, 0))
        behind = start
    return Tail(BEGINNING, 0)


def place_of(path: Path, run_id: str, seq: int) -> LogEnd:
    """Return a position from which a reader gets the record *seq* and all later ones."""
    return next((start for start in _beginnings(path, run_id) if start.next_seq <= seq), BEGINNING)


def _beginnings(path: Path, run_id: str) -> Iterator[LogEnd]:
    """Yield positions to begin at, the last one first, and finally the beginning of the log."""
    numbers = segment_numbers(path)
    for number in reversed(numbers[1:]):
        start = _beginning_of(path, run_id, number)
        if start is not None:
            yield start
    yield BEGINNING


def _beginning_of(path: Path, run_id: str, number: int) -> LogEnd | None:
    header = segment_header(run_id)
    try:
        fd = os.open(
            path / segment_name(number),
            os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK,
        )
    except OSError:
        return None
    try:
        head = os.pread(fd, len(header) + RECORD_HEADER.size, 0)
        if not head.startswith(header) or len(head) < len(header) + RECORD_HEADER.size:
            return None
        length, crc, seq, time_ns, by = RECORD_HEADER.unpack_from(head, len(header))
        if length > MAX_BODY:
            return None
        body = os.pread(fd, length, len(head))
        if len(body) < length or crc_of(seq, time_ns, by, body) != crc:
            return None
    except OSError:
        return None
    finally:
        os.close(fd)
    # The sizes of the earlier segments are unknown; a reader that begins here needs none.
    return LogEnd(number, 0, seq, 0)


def _count(
    path: Path, run_id: str, start: LogEnd, behind: LogEnd | None
) -> tuple[int, bool | None]:
    """Count the newlines in the output between two positions, and say if it ends inside a line.

    The second value is None if there is no output.
    """
    newlines = 0
    ends_open: bool | None = None
    for record in LogReader(path, run_id, start=start):
        if behind is not None and record.seq >= behind.next_seq:
            break
        body = record.body
        if type(body) is Output and body.data:
            newlines += body.data.count(b"\n")
            ends_open = not body.data.endswith(b"\n")
    return newlines, ends_open
