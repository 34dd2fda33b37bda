"""The live view of ``agentctl run`` at a terminal: what the run takes, and what is waited for.

It only looks.  What it shows is measured in a worker thread that nobody waits for, so that
neither a slow /proc nor a terminal that takes no output ever holds up a stop.
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
"""A run that is over by then was never watched by anybody."""
_UPDATE_EVERY_S: Final = 0.25
_SAMPLE_EVERY_S: Final = 0.5
_SAMPLING_SHARE: Final = 20
"""Measuring a big tree takes long: it gets at most one part in so many of the time."""
_TERMINAL_FD: Final = 2


class Watched(Protocol):
    """What is looked at of a run."""

    @property
    def brief_report(self) -> Report:
        """What is known now."""

    def members(self) -> list[ProcessIdentity]:
        """The processes that are alive now."""


class LiveView:
    """Makes the status line of one run; *time_s* is its time limit."""

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
        """Measure the run's processes, again and again, until cancelled."""
        while True:
            cost_s = await run_sync("view", self._measure_once, abandon_on_cancel=True)
            await trio.sleep(max(_SAMPLE_EVERY_S, cost_s * _SAMPLING_SHARE))

    async def keep(self, show: Callable[[str], Awaitable[None]]) -> None:
        """Have *show* put the line on the terminal, four times a second, until cancelled.

        An empty line takes it away: in the background, the terminal is somebody else's.
        """
        await trio.sleep(_FIRST_AFTER_S)
        while True:
            line = ""
            if in_foreground(_TERMINAL_FD):
                # Asking for the width each time is all that a resize needs.
                line = self.line(screen_columns(_TERMINAL_FD), time.monotonic())
            await show(line)
            await trio.sleep(_UPDATE_EVERY_S)

    def line(self, columns: int, now: float) -> str:
        """The line at *now*, for a terminal of *columns*."""
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
        """Seconds of processor time that it took."""
        # In this thread, so that nobody waits for the import either.
        from agentctl_supervisor.cli.terminal.resource_sampling import Sampler

        began = time.thread_time()
        if not self._narrator.phase:  # during a stop nobody asks, and the stop wants the processor
            sampler = self._sampler or Sampler()
            sampler.sample(self._run.members())
            self._sampler = sampler
        # Also before anything is stopped: who gets a signal is known only until it comes.
        self.onlooker.look()
        return time.thread_time() - began
