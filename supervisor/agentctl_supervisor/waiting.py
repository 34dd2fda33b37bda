"""Waits for the end of several runs at once.  Waiting changes nothing about them."""

import select
import time
from collections.abc import Iterator, Sequence

from agentctl_protocol.report import Report
from agentctl_supervisor.listing import current_report
from agentctl_supervisor.signal_wakeup import poll
from agentctl_supervisor.store.run_directory import RunDirectory
from agentctl_supervisor.store.run_end import RunEnd


def ends(directories: Sequence[RunDirectory], timeout_s: float | None) -> Iterator[Report]:
    """The report of each run as it ends, until all have or *timeout_s* seconds are over.

    A run whose supervisor dies has ended, too.

    Raises:
        DamagedRunError, StateDirectoryError: a run's files cannot be read.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    waiting: dict[int, RunDirectory] = {}
    ready = select.poll()
    for directory in directories:
        report = current_report(directory)
        if report.finished:
            yield report
            continue
        end = RunEnd(directory).fileno()
        waiting[end] = directory
        ready.register(end, select.POLLIN)
    while waiting:
        left_s = None if deadline is None else deadline - time.monotonic()
        for fd, _ in poll(ready, left_s):
            ready.unregister(fd)
            yield current_report(waiting.pop(fd))
        if left_s is not None and left_s <= 0:
            return
