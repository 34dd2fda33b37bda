"""Keeps a summary of all finished runs in one file, so that a list need not read every report.

The file is only a cache and never needed.  It is made from the reports.  A process that writes a
report appends to it, and a reader that misses an entry repairs it.  A line holds one or more
entries after a checksum.  A line that is torn or damaged counts as missing, and so does an entry
of a run that does not exist.  An entry is valid only for the directory that it was made for (its
inode), so that the report is read again for a run that was removed or restored from a backup.
"""

import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from agentctl_protocol.errors import UNREADABLE
from agentctl_protocol.report import Report
from agentctl_protocol.vocabulary import Reason, Result, State

INDEX_NAME: Final = "finished.v1"
MAX_INDEX_BYTES: Final = 256 << 20
MAX_ENTRY: Final = 8192

_FLAGS: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class Summary(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The fields of a finished run's `Report` that a list shows.  Stored by position.

    Times are seconds since 1970: a list sorts ten thousand of them and shows them as ages.
    """

    inode: int
    id: str
    name: str | None
    result: Result | None
    reason: Reason | None
    exit_code: int | None
    signal: int | None
    created_s: float
    ended_s: float | None
    command: str

    @property
    def state(self) -> State:
        """The state of every run in the index: finished."""
        return State.FINISHED

    @property
    def finished(self) -> bool:
        """Always True."""
        return True


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list[Summary]).decode


def summary_of(report: Report, inode: int) -> Summary:
    """Return the entry for the run with this *report* in the directory *inode*."""
    return Summary(
        inode=inode,
        id=report.id,
        name=report.name,
        result=report.result,
        reason=report.reason,
        exit_code=report.exit_code,
        signal=report.signal,
        created_s=report.created_at.timestamp(),
        ended_s=None if report.ended_at is None else report.ended_at.timestamp(),
        command=report.command,
    )


def created_s(row: Report | Summary) -> float:
    """Return the time when the run was created, in seconds since 1970."""
    return row.created_s if isinstance(row, Summary) else row.created_at.timestamp()


def ended_s(row: Report | Summary) -> float:
    """Return the time when the run ended or, if unknown, was created, in seconds since 1970."""
    if isinstance(row, Summary):
        return row.created_s if row.ended_s is None else row.ended_s
    return (row.ended_at or row.created_at).timestamp()


class FinishedIndex:
    """The index of the runs in *home*.  No method raises: an unusable entry counts as missing."""

    def __init__(self, home: Path) -> None:
        self._path: Final = home / INDEX_NAME
        self.lines = 0

    def __repr__(self) -> str:
        return f"<FinishedIndex {self._path}>"

    def read(self) -> dict[str, Summary]:
        """Return the latest valid entry of each run by its id; ``lines``: number of lines read."""
        try:
            fd = os.open(self._path, os.O_RDONLY | _FLAGS)
            with open(fd, "rb") as file:
                data = file.read(MAX_INDEX_BYTES)
        except OSError:
            return {}
        lines = data.split(b"\n")
        self.lines = len(lines)
        entries: dict[str, Summary] = {}
        for line in lines:
            try:
                if int(line[:8], 16) == zlib.crc32(body := line[8:]):
                    entries.update((entry.id, entry) for entry in _decode(body))
            except (ValueError, *UNREADABLE):
                continue
        return entries

    def add(self, entries: Iterable[Summary]) -> None:
        """Append *entries*; entries that are too long are left out."""
        data = _line(entries)
        if not data:
            return
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FLAGS, 0o600)
            try:
                os.write(fd, data)  # after a short write, the line is torn and counts as missing
            finally:
                os.close(fd)
        except OSError:
            pass

    def rewrite(self, entries: Iterable[Summary]) -> None:
        """Replace the whole index by *entries*.

        The next reader repairs the loss of entries that others append at the same time.
        """
        temporary = self._path.with_name(f".{INDEX_NAME}.{os.urandom(8).hex()}")
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600)
            with open(fd, "wb") as file:
                file.write(_line(entries))
            os.replace(temporary, self._path)
        except OSError:
            try:
                os.unlink(temporary)
            except OSError:
                pass


def _line(entries: Iterable[Summary]) -> bytes:
    packed = []
    for entry in entries:
        try:
            one = _encode(entry)
        except UnicodeEncodeError:
            continue  # the command has bytes that are not text
        if len(one) <= MAX_ENTRY:
            packed.append(one)
    if not packed:
        return b""
    body = b"[%b]" % b",".join(packed)
    # The newline in front ends an earlier line that was written only in part.
    return b"\n%08x%b\n" % (zlib.crc32(body), body)
