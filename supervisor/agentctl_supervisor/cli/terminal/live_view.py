"""Shows the live view of ``agentctl run`` at a terminal: resource use, and what is waited for.

It only observes.  It measures in a worker thread that nothing waits for.  So neither a slow /proc
nor a terminal that takes no output can delay a stop.
"""

import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

import trio

from agentctl_protocol.report import Report
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.vocabulary import State
from agentctl_supervisor.cli.terminal import status_line
from agentctl_supervisor.cli.terminal.console import in_foreground, screen_columns
from agentctl_supervisor.cli.terminal.remaining_processes import Onlooker
from agentctl_supervisor.cli.wording.narration import Narrator, count
from agentctl_supervisor.cli.wording.phrases import show_size
from agentctl_supervisor.event_loop.worker_threads import run_sync

if TYPE_CHECKING:
    from agentctl_supervisor.cli.terminal.resource_sampling import Sampler

_FIRST_AFTER_S: Final = 0.3
"""The delay before the first line: nobody watches a run that is over by then."""
_UPDATE_EVERY_S: Final = 0.25
_SAMPLE_EVERY_S: Final = 0.5
_SAMPLING_SHARE: Final = 20
"""To measure a big process tree takes long: measuring gets at most 1/20 of the time."""
_TERMINAL_FD: Final = 2


class Watched(Protocol):
    """The part of a run that the live view reads."""

    @property
    def brief_report(self) -> Report:
        """The report of what is known now."""

    def members(self) -> list[ProcessIdentity]:
        """Return the processes that are alive now."""


class LiveView:
    """The maker of the status line of one run; *time_s* is the run's time limit."""

    def __init__(self, run: Watched, narrator: Narrator, time_s: float | None) -> None:
        self.onlooker: Final = Onlooker(run.members)
        self._run = run
        self._narrator = narrator
        self._time_s = time_s
        self._began = time.monotonic()
        self._sampler: Sampler | None = None

    def __repr__(self) -> str:
        return f"<LiveView of {self._narrator.name}>"

    async def measure(self) -> None:
        """Measure the run's processes repeatedly, until cancelled."""
        while True:
            cost_s = await run_sync("view", self._measure_once, abandon_on_cancel=True)
            await trio.sleep(max(_SAMPLE_EVERY_S, cost_s * _SAMPLING_SHARE))

    async def keep(self, show: Callable[[str], Awaitable[None]]) -> None:
        """Call *show* with the line four times a second, until cancelled.

        An empty line removes the status line: in the background, another job has the terminal.
        """
        await trio.sleep(_FIRST_AFTER_S)
        while True:
            line = ""
            if in_foreground(_TERMINAL_FD):
                # The width is read each time, so a resize needs no other handling.
                line = self.line(screen_columns(_TERMINAL_FD), time.monotonic())
            await show(line)
            await trio.sleep(_UPDATE_EVERY_S)

    def line(self, columns: int, now: float) -> str:
        """Return the line at *now*, for a terminal of *columns*."""
        if self._narrator.phase:
            return status_line.waiting(
                [(self._narrator, self.onlooker)], columns, now, "Ctrl-C kills it"
            )
        report = self._run.brief_report
        fields = [status_line.clock(now - self._began, self._time_s)]
        sampler = self._sampler
        if report.state is State.STARTING:
            fields.append("starting")
        elif sampler is not None:
            fields.append(count(sampler.processes))
            if sampler.cpu_percent is not None:
                fields.append(f"cpu {sampler.cpu_percent:.0f}%")
            fields.append(f"memory {show_size(sampler.memory_bytes)}")
        if report.log.events:
            fields.append(f"{report.log.events} events")
        return status_line.fitting(self._narrator.name, [*fields, "Ctrl-C stops it"], columns)

    def _measure_once(self) -> float:
        """Measure once; return the seconds of processor time that it took."""
        # Imported in this thread, so that nothing waits for the import either.
        from agentctl_supervisor.cli.terminal.resource_sampling import Sampler

        began = time.thread_time()
        if not self._narrator.phase:  # not shown during a stop, which needs the processor
            sampler = self._sampler or Sampler()
            sampler.sample(self._run.members())
            self._sampler = sampler
        # Look also when nothing is stopped: after a signal, its receivers may be gone and unknown.
        self.onlooker.look()
        return time.thread_time() - began
