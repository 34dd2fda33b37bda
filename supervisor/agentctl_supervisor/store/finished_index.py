"""What a list shows of finished runs, in one file, so that nobody reads ten thousand reports.

It is a cache and nothing else: made from the reports, appended to by whoever writes one,
mended by whoever misses something in it, and never needed.  A line holds one entry or many,
behind a checksum; one that is torn, damaged or of runs that are not there counts as missing.
An entry holds for the very directory that it was made for (its inode), so that a run which
was removed, or brought back from a backup, is looked at anew.
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
    """What a list shows of a finished run: fields of its `Report`.  Written down by position.

    Moments are seconds since 1970: ten thousand of them are sorted, and told as ages.
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
        """Finished, as all that are in the index."""
        return State.FINISHED

    @property
    def finished(self) -> bool:
        """True."""
        return True


_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(list[Summary]).decode


def summary_of(report: Report, inode: int) -> Summary:
    """The entry for a run of this *report* in the directory *inode*."""
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
    """When the run was made, in seconds since 1970."""
    return row.created_s if isinstance(row, Summary) else row.created_at.timestamp()


def ended_s(row: Report | Summary) -> float:
    """When the run ended or, where that is not known, was made; in seconds since 1970."""
    if isinstance(row, Summary):
        return row.created_s if row.ended_s is None else row.ended_s
    return (row.ended_at or row.created_at).timestamp()


class FinishedIndex:
    """The index of the runs in *home*.  No method raises: what cannot be used is missing."""

    def __init__(self, home: Path) -> None:
        self._path: Final = home / INDEX_NAME
        self.lines = 0

    def __repr__(self) -> str:
        return f"<FinishedIndex {self._path}>"

    def read(self) -> dict[str, Summary]:
        """All good entries by run id, the latest one of each; ``lines`` is how many were read."""
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
        """Append *entries*; too long ones are left out."""
        data = _line(entries)
        if not data:
            return
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _FLAGS, 0o600)
            try:
                os.write(fd, data)  # in one piece, or it is torn and counts as missing
            finally:
                os.close(fd)
        except OSError:
            pass

    def rewrite(self, entries: Iterable[Summary]) -> None:
        """Replace all by *entries*.  What others append meanwhile is mended by the next reader."""
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
            continue  # a command of bytes that are no text
        if len(one) <= MAX_ENTRY:
            packed.append(one)
    if not packed:
        return b""
    body = b"[%b]" % b",".join(packed)
    # The newline in front ends a line that somebody could not write whole.
    return b"\n%08x%b\n" % (zlib.crc32(body), body)
