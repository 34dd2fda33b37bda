"""Follows the log of a run from outside until the run is over."""

import select
from collections.abc import Callable, Iterator
from typing import Final

from agentctl_protocol.records import End, Record
from agentctl_supervisor.errors import AgentctlError
from agentctl_supervisor.observe.list_runs import current_report, is_ended_by_others
from agentctl_supervisor.processes.signal_wakeup import poll
from agentctl_supervisor.store.log_follower import LogFollower
from agentctl_supervisor.store.log_reader import BEGINNING, LogEnd
from agentctl_supervisor.store.log_watch import LogWatch
from agentctl_supervisor.store.run_directory import RunDirectory
from agentctl_supervisor.store.run_end import RunEnd


class Following:
    """Iterates over the records of a run's log from *start* on.

    With *follow* it waits for new records, and ends when the run ends, also if the run ends
    with its supervisor.  Then *pause* is called before each wait.  At the end, ``damaged`` says
    what could not be read.

    Raises (while iterated):
        NoSuchRunError: the run was removed meanwhile.
        DamagedRunError: the log cannot be read.
        AgentctlError: the log cannot be watched.
    """

    def __init__(
        self,
        directory: RunDirectory,
        *,
        start: LogEnd = BEGINNING,
        follow: bool = False,
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self._directory: Final = directory
        self._follower: Final = LogFollower(directory.path, directory.id, start=start)
        self._follow: Final = follow
        self._pause: Final = pause
        self._ended = False
        self.damaged: list[str] = []

    def __repr__(self) -> str:
        return f"<Following {self._directory.id}{', ended' if self._ended else ''}>"

    def __iter__(self) -> Iterator[Record]:
        with self._directory.while_there():
            yield from self._records()

    def _records(self) -> Iterator[Record]:
        if not self._follow:
            yield from self._read()
            return
        try:
            watch = LogWatch(self._directory.path)
        except OSError as error:
            raise AgentctlError(
                f"cannot follow {self._directory.id}: {error.strerror}",
                "see fs.inotify.max_user_instances; without -f it prints what there is",
            ) from None
        with watch:
            yield from self._follow_by(watch)

    def _follow_by(self, watch: LogWatch) -> Iterator[Record]:
        end = RunEnd(self._directory)
        changes = select.poll()
        changes.register(watch, select.POLLIN)
        changes.register(end, select.POLLIN)
        over = False
        # Read after the watch is set up, so that a record appended in between is not missed.
        while True:
            yield from self._read()
            if self._ended or over:
                return
            self._pause()
            ready = {fd for fd, _ in poll(changes)}
            watch.clear()
            if is_ended_by_others(self._directory):
                over = True  # its supervisor does not answer, and may never write again
            elif end.fileno() in ready:
                # No supervisor holds it: its end is written already, or this call writes it.
                current_report(self._directory)
                over = True

    def _read(self) -> Iterator[Record]:
        for record in self._follower.read():
            self._ended = self._ended or type(record.body) is End
            yield record
        # Damage at a place that is read again is reported once.
        self.damaged += [note for note in self._follower.damaged if note not in self.damaged]
