"""Waits for the end of several runs at once.  Waiting changes nothing about them."""

import contextlib
import select
import time
from collections.abc import Iterator, Sequence

from agentctl_protocol.report import Report
from agentctl_protocol.shell_words import shell_word
from agentctl_supervisor.errors import SupervisorGoneError
from agentctl_supervisor.observe.list_runs import current_report, is_ended_by_others
from agentctl_supervisor.processes.signal_wakeup import poll
from agentctl_supervisor.store.log_watch import LogWatch
from agentctl_supervisor.store.run_directory import RunDirectory
from agentctl_supervisor.store.run_end import RunEnd


def ends(directories: Sequence[RunDirectory], timeout_s: float | None) -> Iterator[Report]:
    """Yield the report of each run as it ends, until all have or *timeout_s* seconds are over.

    A run whose supervisor dies has ended, too.  So has a run that a client stopped while its
    supervisor did not answer, if its end was proven.

    Raises:
        DamagedRunError, StateDirectoryError: a run's files cannot be read.
        SupervisorGoneError: a run's supervisor died, and it is not known if the run is over.
    """
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    waiting: dict[int, RunDirectory] = {}
    ready = select.poll()
    with contextlib.ExitStack() as stack:
        # Read after the watch is set up, so that a stop in between is not missed.
        watch = _observing(directories, stack)
        if watch is not None:
            ready.register(watch, select.POLLIN)
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
            over = [fd for fd, _ in poll(ready, left_s) if fd in waiting]
            if watch is not None:
                watch.clear()
            over += [
                fd for fd, run in waiting.items() if fd not in over and is_ended_by_others(run)
            ]
            for fd in over:
                ready.unregister(fd)
                yield _last_word(waiting.pop(fd))
            if left_s is not None and left_s <= 0:
                return


def _observing(directories: Sequence[RunDirectory], stack: contextlib.ExitStack) -> LogWatch | None:
    """Return a watch for stops by clients, or None if the kernel gives none.

    Without it only the ends of the supervisors are noticed.
    """
    with contextlib.suppress(OSError):
        paths = [directory.path for directory in directories]
        return stack.enter_context(LogWatch(*paths, new_files=True))
    return None


def _last_word(directory: RunDirectory) -> Report:
    report = current_report(directory)
    if not report.finished:
        raise SupervisorGoneError(
            f"{report.name or report.id}: {report.detail}",
            "look from where it was started; if that place is gone, so is the run:"
            f" rm -r {shell_word(str(directory.path))} removes its record",
        )
    return report
