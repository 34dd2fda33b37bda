"""Waits for the end of several runs at once.  Waiting changes nothing about them."""

import select
import time
from collections.abc import Iterator, Sequence

from agentctl_protocol.report import Report
from agentctl_supervisor.listing import current_report
from agentctl_supervisor.signal_wakeup import SignalWakeup
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
    poll = select.poll()
    with SignalWakeup() as wakeup:
        poll.register(wakeup, select.POLLIN)
        for directory in directories:
            report = current_report(directory)
            if report.finished:
                yield report
                continue
            end = RunEnd(directory).fileno()
            waiting[end] = directory
            poll.register(end, select.POLLIN)
        while waiting:
            left_s = None if deadline is None else max(deadline - time.monotonic(), 0)
            ready = poll.poll(None if left_s is None else left_s * 1000)
            if not ready:
                return
            wakeup.clear()
            for fd, _ in ready:
                if fd in waiting:
                    poll.unregister(fd)
                    yield current_report(waiting.pop(fd))
