"""Reads a log that is still being written, a piece at a time and never twice."""

from collections.abc import Iterator
from pathlib import Path

from agentctl_protocol.records import Record
from agentctl_supervisor.store.log_reader import BEGINNING, LogEnd, LogReader


class LogFollower:
    """Goes on, at each `read`, where the last one came to.  Keeps a position, not a file.

    It begins at *start*.  ``damaged`` has what the last `read` could not read, in words.
    """

    def __init__(self, path: Path, run_id: str, *, start: LogEnd = BEGINNING) -> None:
        self._path, self._run_id = path, run_id
        self._came_to = start
        self.damaged: list[str] = []

    def __repr__(self) -> str:
        return f"<LogFollower {self._run_id} at {self._came_to}>"

    def read(self) -> Iterator[Record]:
        """The records that were appended since the last call; to be read to the end."""
        reader = LogReader(self._path, self._run_id, start=self._came_to)
        yield from reader
        self.damaged = reader.damaged
        self._came_to = reader.end or self._came_to
