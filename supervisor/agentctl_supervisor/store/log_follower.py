"""Reads a log that is still being written: each call returns only the new records."""

from collections.abc import Iterator
from pathlib import Path

from agentctl_protocol.records import Record
from agentctl_supervisor.store.log_reader import BEGINNING, LogEnd, LogReader


class LogFollower:
    """A reader that continues, at each `read`, at the position where the last one ended.

    It keeps a position and no open file.  It begins at *start*.  ``damaged`` describes the
    places that the last `read` could not read.
    """

    def __init__(self, path: Path, run_id: str, *, start: LogEnd = BEGINNING) -> None:
        self._path, self._run_id = path, run_id
        self._came_to = start
        self.damaged: list[str] = []

    def __repr__(self) -> str:
        return f"<LogFollower {self._run_id} at {self._came_to}>"

    def read(self) -> Iterator[Record]:
        """Yield the records appended since the last call; the caller must read to the end."""
        reader = LogReader(self._path, self._run_id, start=self._came_to)
        yield from reader
        self.damaged = reader.damaged
        self._came_to = reader.end or self._came_to
