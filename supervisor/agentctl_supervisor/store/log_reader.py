"""Reads a run's event log: returns every readable record and describes the rest.

It distinguishes two kinds of damage, because only the second one is a fault:

* **A torn tail**: the last segment does not end with a whole record.  A writer that was
  killed in the middle of an append leaves this behind; a power loss may do so too.  It is
  counted in ``torn_bytes`` and is not a fault.
* **Damage**: anything else.  It is described in ``damaged``.  Reading continues after it, at
  the next record with a correct checksum and sequence number.

The log is streamed: at most one window of a segment is in memory.  The files are never
memory-mapped: a live writer may truncate one, and an access to the mapping would then end this
process with SIGBUS.
"""

import os
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from agentctl_protocol.errors import UNREADABLE
from agentctl_protocol.messages import Events
from agentctl_protocol.records import (
    FORMAT_VERSION,
    MAGIC,
    MAX_BODY,
    RECORD_HEADER,
    SEGMENT_HEADER,
    Record,
    decode_body,
    segment_header,
)
from agentctl_protocol.vocabulary import By
from agentctl_supervisor.errors import DamagedRunError, UnknownLogVersionError, in_words
from agentctl_supervisor.store.log_resync import (
    Budget,
    Numbers,
    reaches_end,
    record_at,
    records_behind,
)

_WINDOW: Final = 1 << 18
_MAX_RUN_ID: Final = 256
_MAX_NOTES: Final = 100
_HEADER_SIZE: Final = RECORD_HEADER.size
_BY: Final = (By.SUPERVISOR, By.CHILD)
#: How far a sequence number may be ahead after a gap of unknown length.
_ANY_GAP: Final = 1 << 32


class LogEnd(NamedTuple):
    """The position in a log at which the next record belongs.

    ``offset`` is in the segment number ``segment``, which may not exist yet.
    ``earlier_bytes`` is the size of the segments before it.
    """

    segment: int
    offset: int
    next_seq: int
    earlier_bytes: int


BEGINNING: Final = LogEnd(segment=1, offset=0, next_seq=1, earlier_bytes=0)


class LogReader:
    """An iterator over the records of the log in the directory *path*, for one pass.

    *start*: the position that another reader of this log reached (its ``end``); the default is
    the beginning of the log.

    Malicious files are safe to read: memory is bounded by a window and a record, time by
    the length of the files.  A live log can be read: records that are appended during the
    iteration may or may not be returned, and a half-written record looks torn.

    Attributes, complete when the iteration has ended:
        torn_bytes: bytes at the end of the last segment that are not a whole record.
        unknown: number of records of types that this version does not know.
        bytes: the length of the log without a torn tail.
        end: the position for the next append, or None if there is no log at all.

    Raises (while iterating):
        UnknownLogVersionError: the log was written by a newer agentctl.
        DamagedRunError: the files cannot be read at all; the text has the system's message.
    """

    def __init__(
        self, path: str | os.PathLike[str], run_id: str = "", *, start: LogEnd = BEGINNING
    ) -> None:
        self.path: Final = Path(path)
        self.run_id: Final = run_id or self.path.name
        self.start: Final = start
        self.torn_bytes = 0
        self.unknown = 0
        self.bytes = start.earlier_bytes
        self.end: LogEnd | None = None
        self._due = start.next_seq
        # After a record of unknown type or a missing segment, any higher number may follow.
        self._gap_allowed = False
        self._notes: list[str] = []
        self._notes_left_out = 0

    def __repr__(self) -> str:
        return (
            f"<LogReader {self.run_id}: {self.bytes} bytes, {self.torn_bytes} torn,"
            f" {len(self.damaged)} damaged, {self.unknown} unknown>"
        )

    @property
    def damaged(self) -> list[str]:
        """Descriptions of what could not be read; a long list is cut, and its last item says so."""
        if self._notes_left_out:
            return [*self._notes, f"and {self._notes_left_out:,} more places"]
        return list(self._notes)

    def __iter__(self) -> Iterator[Record]:
        try:
            yield from self._read_segments()
        except OSError as error:
            raise DamagedRunError(
                f"{self.run_id}: its log cannot be read: {in_words(error)}",
                f"look at the files in {self.path}",
            ) from None

    def _read_segments(self) -> Iterator[Record]:
        number = self.start.segment - 1
        numbers = [later for later in segment_numbers(self.path) if later > number]
        while numbers:
            if numbers[0] > number + 1:
                self.note(_missing(number + 1, numbers[0] - 1))
                self._gap_allowed = True
            number = numbers.pop(0)
            segment = _Segment(self, number, is_last=not numbers)
            try:
                yield from segment.records()
                if not numbers:
                    numbers = [later for later in segment_numbers(self.path) if later > number]
                    if numbers:
                        yield from segment.rest()
            finally:
                segment.close()

    # The methods below are for `_Segment`.

    def note(self, text: str) -> None:
        """Add *text*, the description of a damaged place."""
        if len(self._notes) < _MAX_NOTES:
            self._notes.append(text)
        else:
            self._notes_left_out += 1

    def numbers_after(self, skipped_bytes: int) -> Numbers:
        """Return the sequence numbers that a record may have after *skipped_bytes*."""
        return Numbers(self._due, self._due + (_ANY_GAP if self._gap_allowed else skipped_bytes))

    def allow_gap(self) -> None:
        """Accept a higher number for the next record: something was skipped and noted."""
        self._gap_allowed = True

    def settle(self, segment: int, offset: int, earlier_bytes: int) -> None:
        """Set the end of the log, as far as it was read."""
        self.bytes = earlier_bytes + offset
        self.end = LogEnd(segment, offset, self._due, earlier_bytes)

    def take(
        self, header: tuple[int, int, int, int, int], body: bytes, segment: int, offset: int
    ) -> Record | None:
        """Decode a record; return None if it is to be skipped, with a note."""
        _, _, seq, time_ns, by = header
        if seq != self._due:
            where = f"segment {segment}: at offset {offset:,}"
            if seq < self._due:
                self.note(f"{where} record {seq} comes again where {self._due} is due; skipped")
                return None
            if not self._gap_allowed:
                self.note(f"{where} records {self._due} to {seq - 1} are missing")
        try:
            known_by = _BY[by]
            decoded = decode_body(known_by, body)
        except (IndexError, *UNREADABLE) as error:
            # The checksum is correct, so the disk did not damage it; it was written like this.
            why = " ".join(str(error).split())[:100]
            self.note(f"segment {segment}: at offset {offset:,} record {seq} is unreadable: {why}")
            self._due, self._gap_allowed = seq + 1, True
            return None
        if decoded is None:
            self.unknown += 1
            self._due, self._gap_allowed = seq + 1, True
        else:
            self._due = seq + (len(decoded.events) if type(decoded) is Events else 1)
            self._gap_allowed = False
        return Record(seq, time_ns, known_by, decoded)


class _Bad(NamedTuple):
    """The fault at a damaged place.

    ``claimed_end`` is the end of the damaged record according to its own header.  ``is_torn``:
    the death of a writer explains the fault, if nothing follows it.
    """

    why: str
    claimed_end: int | None = None
    is_torn: bool = True


class _Segment:
    """One file of a log, read from its beginning to its end."""

    def __init__(self, log: LogReader, number: int, *, is_last: bool) -> None:
        self._log = log
        self._number = number
        self._is_last = is_last
        self._bytes_before = log.bytes
        # O_NONBLOCK: opening must not block if the file is a FIFO.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._fd = os.open(log.path / segment_name(number), flags)

    def close(self) -> None:
        os.close(self._fd)

    def records(self) -> Iterator[Record]:
        start = self._first_record()
        if start is not None and self._number == self._log.start.segment:
            start = max(start, self._log.start.offset)
        while start is not None:
            start = yield from self._records_from(start)

    def rest(self) -> Iterator[Record]:
        """Yield the records that a live writer added after this was read as the last segment.

        A writer begins the next segment only after a whole record.  So if a next segment exists
        now, the end or the torn record that was found here was only read too early.
        """
        self._is_last = False
        end, self._log.torn_bytes = self._log.end, 0
        if end is None or end.segment != self._number:
            return
        start = end.offset or self._first_record()
        while start is not None:
            start = yield from self._records_from(start)

    def _records_from(self, start: int) -> Generator[Record, None, int | None]:
        """Yield the good records from *start*; return the offset to go on at after a bad place."""
        take, unpack, crc32 = self._log.take, RECORD_HEADER.unpack_from, zlib.crc32
        offset = base = start
        window = b""
        while True:
            at = offset - base
            if len(window) - at < _HEADER_SIZE:
                window, base, at = os.pread(self._fd, _WINDOW, offset), offset, 0
                if not window:
                    self._settle(offset)
                    return None
            length, crc, end = 0, 0, len(window) + 1
            if len(window) >= _HEADER_SIZE:
                header = unpack(window, at)
                length, crc = header[0], header[1]
                end = at + _HEADER_SIZE + length
                if end > len(window) and length <= MAX_BODY:
                    window = os.pread(self._fd, _HEADER_SIZE + length + _WINDOW, offset)
                    base, at, end = offset, 0, _HEADER_SIZE + length
            if end <= len(window) and length <= MAX_BODY and crc32(window[at + 8 : end]) == crc:
                body = window[at + _HEADER_SIZE : end]
                record = take(header, body, self._number, offset)
                offset = base + end
                if record is not None:
                    yield record
                continue
            size = self._size()
            if base + len(window) < size and end > len(window) and length <= MAX_BODY:
                # A live writer had written only a part of the record when it was read.
                window, base = b"", offset
                continue
            # Only *size* bytes are judged: data that is appended from here on is left out.
            return self._behind(offset, self._judge(offset, size), size)

    def _first_record(self) -> int | None:
        """Return the offset of the first record, or None if the file is not to be read.

        Raises:
            UnknownLogVersionError: the file has another format version.
        """
        own = segment_header(self._log.run_id)
        head = os.pread(self._fd, SEGMENT_HEADER.size + _MAX_RUN_ID, 0)
        size = self._size()
        while len(head) < min(len(own), size):
            # A live writer has just created the file.
            head = os.pread(self._fd, SEGMENT_HEADER.size + _MAX_RUN_ID, 0)
            size = self._size()
        if head.startswith(own):
            return len(own)
        if own.startswith(head) or not any(head):
            # The header was never written, or was lost in a power loss.
            return self._behind(0, _Bad("no segment header"), size)
        if not head.startswith(MAGIC) or len(head) < SEGMENT_HEADER.size:
            return self._behind(0, _Bad("bad magic", is_torn=False), size)
        _, version, length = SEGMENT_HEADER.unpack_from(head)
        if version != FORMAT_VERSION:
            raise UnknownLogVersionError(
                f"{self._log.run_id}: its log has format version {version},"
                f" and this agentctl reads version {FORMAT_VERSION}",
                "use the agentctl that wrote it, or a newer one",
            )
        other = head[SEGMENT_HEADER.size :][:length].decode("ascii", "backslashreplace")
        self._skip_rest(0, f"it belongs to another run, {other[:40]!r}", size)
        return None

    def _judge(self, offset: int, size: int) -> _Bad:
        """Return the fault of the record at *offset*, which is incomplete or damaged.

        *size* is the size that the file had when the fault was found.
        """
        header = os.pread(self._fd, _HEADER_SIZE, offset)
        if len(header) < _HEADER_SIZE or offset + _HEADER_SIZE > size:
            return _Bad("half a header")
        length, _, seq, _, by = RECORD_HEADER.unpack(header)
        if length > MAX_BODY:
            return _Bad(f"a length of {length:,}")
        end = offset + _HEADER_SIZE + length
        why = "bad checksum" if end <= size else "the record is longer than the file"
        numbers = self._log.numbers_after(0)
        if by in (By.SUPERVISOR, By.CHILD) and numbers.due <= seq <= numbers.highest:
            return _Bad(why, claimed_end=end)
        return _Bad(why)

    def _behind(self, offset: int, bad: _Bad, size: int) -> int | None:
        """Return where reading goes on after the bad place at *offset*; None: not in this file.

        The length in a plausible header is trusted first: the agent wrote the body, so data in
        it that looks like records must not count as records.  For the same reason, records
        inside a record that was cut short count only if they lead exactly to the end of the
        file.
        """
        budget = Budget()
        numbers = self._log.numbers_after(size - offset)
        end = bad.claimed_end
        behind: int | None = None
        if end is not None and end < size and record_at(self._fd, end, size, numbers, budget):
            behind = end
        elif end != size:
            found = records_behind(self._fd, offset + 1, size, numbers, budget)
            for candidate in found:
                is_inside = self._is_last and end is not None and end > size
                if not is_inside or reaches_end(self._fd, candidate, size, numbers, budget):
                    behind = candidate
                    break
        if behind is not None:
            self._log.note(_skipped(self._number, behind - offset, offset, bad.why))
            self._log.allow_gap()
            return behind
        if budget.spent:
            self._skip_rest(offset, f"{bad.why}; too much like records to search it all", size)
        elif self._is_last and bad.is_torn:
            self._log.torn_bytes = size - offset
            self._settle(offset)
        else:
            self._skip_rest(offset, bad.why, size)
        return None

    def _skip_rest(self, offset: int, why: str, size: int) -> None:
        self._log.note(_skipped(self._number, size - offset, offset, why))
        self._log.allow_gap()
        # Nothing is appended after an unreadable part: a reader would not find it.
        self._log.settle(self._number + 1, 0, self._bytes_before + size)

    def _settle(self, offset: int) -> None:
        self._log.settle(self._number, offset, self._bytes_before)

    def _size(self) -> int:
        return os.fstat(self._fd).st_size


def segment_name(number: int) -> str:
    """Return the file name of the segment *number*; the first segment has number 1."""
    return f"{number:08}.log"


def segment_numbers(path: Path) -> list[int]:
    """Return the numbers of the log's segments, in order."""
    names = (name.removesuffix(".log") for name in os.listdir(path) if name.endswith(".log"))
    return sorted(int(name) for name in names if len(name) == 8 and name.isdecimal())


def _missing(first: int, last: int) -> str:
    if first == last:
        return f"segment {first} is missing"
    return f"segments {first} to {last} are missing"


def _skipped(number: int, count: int, offset: int, why: str) -> str:
    return f"segment {number}: {count:,} bytes skipped at offset {offset:,}: {why}"
