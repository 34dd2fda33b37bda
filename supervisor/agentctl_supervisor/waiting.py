"""Waits for the end of several runs at once.  Waiting changes nothing about them."""

import time
from collections.abc import Iterator, Sequence
from queue import Empty, SimpleQueue

from agentctl_protocol.report import Report
from agentctl_supervisor.listing import current_report
from agentctl_supervisor.store.run_directory import RunDirectory
from agentctl_supervisor.store.run_end import call_when_free


def ends(directories: Sequence[RunDirectory], timeout_s: float | None) -> Iterator[Report]:
    """The report of each run as it ends, until all have or *timeout_s* seconds are over.

    A run whose supervisor dies has ended, too.

    Raises:
        DamagedRunError, StateDirectoryError: a run's files cannot be read.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    ended: SimpleQueue[RunDirectory] = SimpleQueue()
    waiting = 0
    for directory in directories:
        report = current_report(directory)
        if report.finished:
            yield report
            continue
        waiting += 1
        call_when_free(directory, lambda directory=directory: ended.put(directory))  # type: ignore[misc]
    while waiting:
        left_s = None if deadline is None else max(deadline - time.monotonic(), 0)
        try:
            directory = ended.get(timeout=left_s)
        except Empty:
            return
        yield current_report(directory)
        waiting -= 1
