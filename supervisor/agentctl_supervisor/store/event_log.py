"""Writes a run's event log: segments that only grow.

* An append is one write(2) to a descriptor opened with O_APPEND.  Its data is in the page cache
  when it returns, so SIGKILL of the writer loses nothing of it.
* `LogWriter.sync` writes the appended data to the disk.  It may run in another thread and never
  makes an append wait.
* A write that fails, or stops half-way, is cut off again: a log ends with a whole record unless
  its writer, or the machine, died in the middle of one.

The format is defined in `agentctl_protocol.records`; `log_reader` reads it.
"""

import os
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from agentctl_protocol.records import MAX_BODY, pack_record, segment_header
from agentctl_protocol.vocabulary import By
from agentctl_supervisor.errors import LogFullError
from agentctl_supervisor.store.log_reader import LogEnd, LogReader, segment_name

SEGMENT_BYTES: Final = 16 << 20
RESERVE_BYTES: Final = 16 << 10
RESERVE_NAME: Final = "reserve"
"""A file that only reserves room, so that a run can end properly on a full disk."""

_encode = msgspec.msgpack.Encoder().encode


class Appended(NamedTuple):
    """The (first) sequence number of an appended record, and its wall time in nanoseconds."""

    seq: int
    time_ns: int


class LogWriter:
    """The writer of the log in the directory *path*: one per run, used by one thread.

    An existing log is continued: a torn tail is cut off first, and counted in ``cut_bytes``.
    *end* is the end that a `LogReader` found after reading the whole log; without it, the log is
    read here.

    Raises:
        LogFullError: there is no room to begin.
        DamagedRunError: the log to be continued has another version.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        run_id: str,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        end: LogEnd | None = None,
    ) -> None:
        self.path: Final = Path(path)
        self.run_id: Final = run_id
        self.cut_bytes = 0
        self._segment_bytes = segment_bytes
        self._header = segment_header(run_id)
        # Held while the set of open segments changes, but never during a sync or a write.
        self._segments_lock = threading.Lock()
        # Allows one sync at a time; only its holder closes descriptors.
        self._sync_lock = threading.Lock()
        self._retired: list[int] = []
        self._synced_seq = 0
        self._names_synced = False
        self._earlier_bytes = 0
        self._broken = ""
        self._sync_failed = ""
        self._fd = -1
        self._size = 0
        self.next_seq = 1
        self._segment = 1
        if end is None:
            end = _end_of(self.path, run_id)
        try:
            if end is None:
                self._open_segment(1)
                self._make_reserve()
            else:
                self._continue(end)
        except OSError as error:
            self.close()
            raise LogFullError(f"{run_id}: cannot write its log: {error.strerror}") from None

    def __repr__(self) -> str:
        return (
            f"<LogWriter {self.run_id}: next {self.next_seq}, segment {self._segment},"
            f" {self.size} bytes, durable up to {self._synced_seq}>"
        )

    @property
    def size(self) -> int:
        """The length of the whole log."""
        return self._earlier_bytes + self._size

    @property
    def unsynced(self) -> bool:
        """True if some appended data is not known to be on the disk."""
        return self._synced_seq < self.next_seq - 1

    def append(
        self, body: msgspec.Struct | bytes, by: By = By.SUPERVISOR, count: int = 1
    ) -> Appended:
        """Write one record; a batch of *count* events takes that many sequence numbers.

        Raises:
            LogFullError: the record was not written, and the log is unchanged.
        """
        raw = body if isinstance(body, bytes) else _encode(body)
        if len(raw) > MAX_BODY:
            raise ValueError(f"a record of {len(raw)} bytes: the limit is {MAX_BODY}")
        seq = self.next_seq
        time_ns = time.time_ns()
        self._write(pack_record(seq, time_ns, by, raw))
        self.next_seq = seq + count
        return Appended(seq, time_ns)

    def append_batch(
        self, records: Iterable[tuple[msgspec.Struct | bytes, By, int]]
    ) -> list[Appended]:
        """Write several records, each ``(body, by, count)``, in one system call: all or none.

        Raises:
            LogFullError: no record was written, and the log is unchanged.
        """
        seq, time_ns = self.next_seq, time.time_ns()
        appended: list[Appended] = []
        packed: list[bytes] = []
        for body, by, count in records:
            raw = body if isinstance(body, bytes) else _encode(body)
            if len(raw) > MAX_BODY:
                raise ValueError(f"a record of {len(raw)} bytes: the limit is {MAX_BODY}")
            packed.append(pack_record(seq, time_ns, by, raw))
            appended.append(Appended(seq, time_ns))
            seq += count
        if packed:
            self._write(b"".join(packed))
            self.next_seq = seq
        return appended

    def sync(self) -> int:
        """Write all records appended before the call to the disk; return the last one's number.

        This blocks; call it on a worker thread.  The first sync also makes the run's directory,
        the files beside the log and their names durable, so that a log that survives a power
        loss also has the spec that explains it.

        Raises:
            LogFullError: the disk did not store the data.
        """
        try:
            with self._sync_lock:
                return self._sync_open_segments()
        finally:
            self._reap_if_closed()

    def use_reserve(self) -> None:
        """Free the reserved room, so that the records of the run's end fit."""
        try:
            os.unlink(self.path / RESERVE_NAME)
        except OSError:
            pass  # freed before, or the disk allows no removal

    def close(self) -> None:
        """Close the log; the appended data stays.  This neither syncs nor waits for a sync."""
        with self._segments_lock:
            if self._fd >= 0:
                self._retired.append(self._fd)
            self._fd = -1
            self._broken = "it is closed"
        self._reap_if_closed()
        self.use_reserve()

    def _write(self, data: bytes) -> None:
        if self._broken:
            raise LogFullError(f"{self.run_id}: cannot write its log: {self._broken}")
        try:
            if self._size and self._size + len(data) > self._segment_bytes:
                self._open_segment(self._segment + 1)
            if not self._size:
                # The header is written together with the first record: alone it has no use.
                data = self._header + data
            written = os.write(self._fd, data)
        except OSError as error:
            raise LogFullError(
                f"{self.run_id}: cannot write its log: {error.strerror}",
                f"make room on the disk that holds {self.path}",
            ) from None
        if written == len(data):
            self._size += written
            return
        # write(2) is short only if there is no more room: disk, quota or RLIMIT_FSIZE.
        try:
            os.ftruncate(self._fd, self._size)
        except OSError as error:
            self._broken = f"half a record could not be cut off: {error.strerror}"
        raise LogFullError(
            f"{self.run_id}: cannot write its log: no room for {len(data)} bytes",
            f"make room on the disk that holds {self.path}",
        )

    def _open_segment(self, number: int) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        fd = os.open(self.path / segment_name(number), flags, 0o600)
        with self._segments_lock:
            if self._fd >= 0:
                self._retired.append(self._fd)
            self._fd = fd
            self._segment = number
            self._earlier_bytes += self._size
            self._size = 0
            self._names_synced = False

    def _continue(self, end: LogEnd) -> None:
        flags = (
            os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        )
        fd = os.open(self.path / segment_name(end.segment), flags, 0o600)
        self._fd = fd
        self._segment = end.segment
        size = os.fstat(fd).st_size
        self.cut_bytes = size - end.offset
        if self.cut_bytes:
            os.ftruncate(fd, end.offset)
        self._size = end.offset
        self._earlier_bytes = end.earlier_bytes
        self.next_seq = end.next_seq
        self._synced_seq = 0

    def _make_reserve(self) -> None:
        fd = os.open(
            self.path / RESERVE_NAME, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        try:
            # glibc writes the blocks one by one if the file system cannot preallocate.
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
        finally:
            os.close(fd)

    def _sync_open_segments(self) -> int:
        with self._segments_lock:
            # Read the number before the descriptors: all records up to it are in one of these.
            last = self.next_seq - 1
            current, retired = self._fd, tuple(self._retired)
            names_synced = self._names_synced
            self._names_synced = True
        if current < 0:
            return self._synced_seq
        if self._sync_failed:
            raise LogFullError(self._sync_failed)
        try:
            for fd in (*retired, current):
                os.fdatasync(fd)
            if not names_synced:
                self._sync_names()
        except OSError as error:
            # The kernel marks the lost pages clean and reports the error only once (fsync(2),
            # since 4.13): a second try would succeed without having written anything.
            self._sync_failed = f"{self.run_id}: its log is not on the disk: {error.strerror}"
            raise LogFullError(self._sync_failed) from None
        with self._segments_lock:
            del self._retired[: len(retired)]
        for fd in retired:
            os.close(fd)
        self._synced_seq = last
        return last

    def _reap_if_closed(self) -> None:
        """Close the descriptors of a closed log; a running sync does this itself at its end."""
        if self._fd >= 0 or not self._sync_lock.acquire(blocking=False):
            return
        try:
            with self._segments_lock:
                for fd in self._retired:
                    os.close(fd)
                self._retired.clear()
        finally:
            self._sync_lock.release()

    def _sync_names(self) -> None:
        for entry in os.scandir(self.path):
            if entry.is_file(follow_symlinks=False) and not entry.name.endswith(".log"):
                _sync_path(entry.path)
        _sync_path(self.path)
        _sync_path(self.path.parent)


def _sync_path(path: str | Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return  # the reserve was freed meanwhile
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _end_of(path: Path, run_id: str) -> LogEnd | None:
    reader = LogReader(path, run_id)
    for _ in reader:
        pass
    return reader.end
