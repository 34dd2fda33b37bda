"""Event logs to damage: written by the real writer, hurt byte by byte, read back."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from agentctl_protocol.records import RECORD_HEADER, Output, pack_record, segment_header
from agentctl_protocol.vocabulary import By
from agentctl_supervisor.store.event_log import LogWriter
from agentctl_supervisor.store.log_reader import LogReader, segment_name

RUN_ID = "r-testtest"


def output(text: str) -> Output:
    """A record that carries *text*."""
    return Output(stream="stdout", data=text.encode())


@dataclasses.dataclass
class LogFile:
    """A log in a directory, with what was appended to it."""

    path: Path
    texts: list[str]

    @classmethod
    def write(cls, parent: Path, texts: Sequence[str], segment_bytes: int = 16 << 20) -> "LogFile":
        """A closed log with one output record for each of *texts*."""
        path = parent / RUN_ID
        path.mkdir()
        writer = LogWriter(path, RUN_ID, segment_bytes=segment_bytes)
        for text in texts:
            writer.append(output(text))
        writer.close()
        return cls(path, list(texts))

    def segment(self, number: int = 1) -> Path:
        """The file of a segment."""
        return self.path / segment_name(number)

    def offsets(self, number: int = 1) -> list[int]:
        """Where the records of an undamaged segment begin, and where the last one ends."""
        data = self.segment(number).read_bytes()
        found = [len(segment_header(RUN_ID))]
        while found[-1] < len(data):
            length: int = RECORD_HEADER.unpack_from(data, found[-1])[0]
            found.append(found[-1] + RECORD_HEADER.size + length)
        return found

    def set_bytes(self, offset: int, data: bytes, number: int = 1) -> None:
        """Overwrite a part of a segment."""
        with self.segment(number).open("r+b") as file:
            file.seek(offset)
            file.write(data)

    def flip(self, offset: int, number: int = 1) -> None:
        """Turn over every bit of one byte."""
        old = self.segment(number).read_bytes()[offset]
        self.set_bytes(offset, bytes([old ^ 0xFF]), number)

    def shrink(self, count: int, number: int = 1) -> None:
        """Cut *count* bytes off the end of a segment."""
        data = self.segment(number).read_bytes()
        self.segment(number).write_bytes(data[: len(data) - count])

    def grow(self, data: bytes, number: int = 1) -> None:
        """Add bytes to the end of a segment."""
        with self.segment(number).open("ab") as file:
            file.write(data)

    def read(self) -> tuple[list[str], LogReader]:
        """The texts that can still be read, and the reader that has read them."""
        return read_log(self.path)


def read_log(path: Path) -> tuple[list[str], LogReader]:
    """The texts of the output records in a log, and the reader that has read them."""
    reader = LogReader(path, RUN_ID)
    texts = [r.body.data.decode() for r in reader if isinstance(r.body, Output)]
    return texts, reader


def packed(seq: int, body: bytes, by: int = By.SUPERVISOR, time_ns: int = 1) -> bytes:
    """A record with a right checksum and whatever is in it."""
    return pack_record(seq, time_ns, by, body)  # type: ignore[arg-type]
