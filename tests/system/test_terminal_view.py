"""The live view of a run: what its line says, and that nobody ever waits for it."""

import os
import re
import threading
import time
from datetime import UTC, datetime

import trio

from agentctl_protocol.control import Step
from agentctl_protocol.report import LogSummary, Report
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.vocabulary import Rung, State
from agentctl_supervisor.cli.terminal.live_view import LiveView
from agentctl_supervisor.cli.terminal.resource_sampling import Sampler
from agentctl_supervisor.cli.wording.narration import Narrator
from agentctl_supervisor.processes.process_tree import identity_of


class _Run:
    """A run whose only process is this one."""

    def __init__(self, state: State, events: int = 0) -> None:
        self.brief_report = Report(
            id="r-abcdefgh",
            state=state,
            created_at=datetime.now(UTC),
            log=LogSummary(events=events),
        )

    def members(self) -> list[ProcessIdentity]:
        return [own] if (own := identity_of(os.getpid())) is not None else []


def test_the_line_says_first_what_matters_most() -> None:
    """On a narrow terminal the name and the time are left."""
    view = LiveView(_Run(State.RUNNING, events=7), Narrator("demo"), 60.0)
    view._measure_once()
    now = view._began + 14
    line = view.line(120, now)
    # What is measured is whoever runs this test, small or large.
    left, _, rest = line.partition("  memory ")
    assert left == "demo  46 s left  1 process"
    assert re.fullmatch(r"[0-9.]+ [MG]iB  7 events  Ctrl-C stops it", rest)
    assert view.line(40, now).startswith("demo  46 s left  1 process")
    assert view.line(17, now) == "demo  46 s left"
    assert view.line(12, now) == "demo"


def test_a_run_that_starts_is_said_to_start() -> None:
    """There is nothing to measure yet."""
    view = LiveView(_Run(State.STARTING), Narrator("demo"), None)
    assert view.line(80, view._began + 2) == "demo  2 s  starting  Ctrl-C stops it"


def test_during_a_stop_it_counts_down_and_measures_nothing() -> None:
    """Who is still alive is what matters then."""
    narrator = Narrator("demo")
    view = LiveView(_Run(State.STOPPING), narrator, None)
    narrator.line(Step(step=Rung.SIGTERM, processes=1, left_s=2), 100.0)
    view._measure_once()
    assert view._sampler is None
    line = view.line(400, 100.5)
    assert line.startswith("demo  SIGTERM, 1.5 s left  1 process: python")
    assert line.endswith("  Ctrl-C kills it")


async def test_nobody_waits_for_a_measurement() -> None:
    """A /proc that does not answer holds up neither the line nor the end."""
    stuck, looked = threading.Event(), threading.Event()

    class Stuck(_Run):
        def members(self) -> list[ProcessIdentity]:
            looked.set()
            stuck.wait()
            return []

    view = LiveView(Stuck(State.RUNNING), Narrator("demo"), None)
    shown: list[str] = []

    async def show(line: str) -> None:
        shown.append(line)
        if looked.is_set() and len(shown) > 1:
            nursery.cancel_scope.cancel()

    try:
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(view.measure)
                nursery.start_soon(view.keep, show)
    finally:
        stuck.set()
    assert shown[0].startswith("demo  0 s  Ctrl-C")


def test_processor_time_is_that_between_two_samples() -> None:
    """One busy thread is about 100 percent of the time in which it had a processor."""
    sampler = Sampler()
    members = _Run(State.RUNNING).members()
    sampler.sample(members)
    at_first = sampler.cpu_percent
    assert at_first is None
    began, worked = time.monotonic(), time.process_time()
    while time.process_time() - worked < 0.2:
        pass
    share = (time.process_time() - worked) / (time.monotonic() - began) * 100
    sampler.sample(members)
    assert sampler.cpu_percent is not None
    # The kernel counts in ticks of 10 ms.
    assert abs(sampler.cpu_percent - share) < 25
    assert sampler.memory_bytes > 1 << 20
    sampler.sample([ProcessIdentity(2**22 - 1, 1)])
    assert (sampler.processes, sampler.memory_bytes) == (0, 0)
