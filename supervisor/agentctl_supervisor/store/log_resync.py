"""Finds the next record after a damaged place in a log segment.

Bytes are accepted as a record if the length, the sequence number, the writer and the checksum
are all valid.  The body of a record holds what the agent wrote, and that may look like
records.  So `log_reader` searches only if the length field of the damaged record does not lead
to the next one.

The search is bounded: a file of headers that each claim a megabyte would otherwise take
time proportional to the square of its length.
"""

import os
import re
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from agentctl_protocol.records import MAX_BODY, RECORD_HEADER
from agentctl_protocol.vocabulary import By

_STEP: Final = 1 << 20
_HEADER_SIZE: Final = RECORD_HEADER.size
_CRC_END: Final = 8
_SEARCH_BYTES: Final = 64 << 20


class Budget:
    """The number of bytes that a search may still read; ``spent`` if it had to give up."""

    def __init__(self, left: int = _SEARCH_BYTES) -> None:
        self.left = left

    @property
    def spent(self) -> bool:
        """True if the search was given up."""
        return self.left < 0

    def take(self, count: int) -> bool:
        """Subtract *count* bytes from the budget; return False if it had fewer left."""
        self.left -= count
        return self.left >= 0


class Numbers(NamedTuple):
    """The sequence numbers that a record may have: from the expected one to *highest*."""

    due: int
    highest: int


def records_behind(
    fd: int, start: int, size: int, numbers: Numbers, budget: Budget
) -> Iterator[int]:
    """Yield the offsets at or after *start* where a whole, valid record begins, in order.

    *numbers* are the accepted sequence numbers.  A batch uses one number for each event, and an
    event takes at least a byte, so n skipped bytes held at most n numbers.
    """
    header = _header_pattern(numbers)
    offset = start
    while offset + _HEADER_SIZE <= size:
        window = os.pread(fd, _STEP + _HEADER_SIZE - 1, offset)
        if len(window) < _HEADER_SIZE or not budget.take(len(window)):
            return
        at = 0
        while (found := header.search(window, at)) is not None:
            at = found.start()
            if record_at(fd, offset + at, size, numbers, budget) is not None:
                yield offset + at
            if budget.spent:
                return
            at += 1
        offset += len(window) - _HEADER_SIZE + 1


def record_at(fd: int, offset: int, size: int, numbers: Numbers, budget: Budget) -> int | None:
    """Return the offset after the record at *offset*; None if no record in *numbers* is there."""
    header = os.pread(fd, _HEADER_SIZE, offset)
    if len(header) < _HEADER_SIZE:
        return None
    length, crc, seq, _, by = RECORD_HEADER.unpack(header)
    end = offset + _HEADER_SIZE + length
    if (
        length > MAX_BODY
        or end > size
        or by not in (By.SUPERVISOR, By.CHILD)
        or not numbers.due <= seq <= numbers.highest
        or not budget.take(length)
    ):
        return None
    body = os.pread(fd, length, offset + _HEADER_SIZE)
    right = len(body) == length and zlib.crc32(body, zlib.crc32(header[_CRC_END:])) == crc
    return end if right else None


def reaches_end(fd: int, offset: int, size: int, numbers: Numbers, budget: Budget) -> bool:
    """Return True if whole records follow each other from *offset* exactly to *size*."""
    while offset < size:
        end = record_at(fd, offset, size, numbers, budget)
        if end is None:
            return False
        offset = end
    return True


def _header_pattern(numbers: Numbers) -> re.Pattern[bytes]:
    # The pattern only finds candidates; `record_at` checks them.  A Python loop over each byte
    # of a segment would take half a minute.
    high = {number >> 32 for number in numbers}
    number = b"|".join(re.escape(part.to_bytes(4, "big")) for part in sorted(high))
    length = rb"\x00[\x00-" + re.escape(bytes([MAX_BODY >> 16])) + rb"].."
    # After a power loss, the file system returns zeros for data that it had not written.
    return re.compile(length + rb"....(?!\x00{8})(?:" + number + rb").{12}[\x00\x01]", re.DOTALL)
