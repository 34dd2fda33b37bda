"""Measures the CPU time and memory that a run uses now, with psutil."""

import time
from collections.abc import Sequence

import psutil

from agentctl_protocol.spawning import ProcessIdentity


class Sampler:
    """A repeated measurement of a process tree.  Use it in a worker thread: /proc may be slow.

    ``cpu_percent`` covers the time between the last two samples; one core is 100.  A process that
    ended in between is counted if a live process has waited for it.
    ``memory_bytes`` is the sum of the resident sets: a page that two processes share counts twice.
    """

    def __init__(self) -> None:
        self.cpu_percent: float | None = None
        self.memory_bytes = 0
        self.processes = 0
        self._known: dict[ProcessIdentity, psutil.Process] = {}
        self._cpu_s: float | None = None
        self._at = 0.0

    def __repr__(self) -> str:
        return f"<Sampler of {self.processes} processes>"

    def sample(self, members: Sequence[ProcessIdentity]) -> None:
        """Measure *members*, which are alive or were a moment ago."""
        known: dict[ProcessIdentity, psutil.Process] = {}
        cpu_s, memory = 0.0, 0
        now = time.monotonic()
        for identity in members:
            try:
                process = self._known.get(identity) or psutil.Process(identity.pid)
                with process.oneshot():
                    # A parent gets the times of a child when it waits for it: nothing is lost.
                    cpu_s += sum(process.cpu_times()[:4])
                    memory += process.memory_info().rss
            except psutil.Error:
                continue  # it is gone
            known[identity] = process
        if self._cpu_s is not None and now > self._at:
            self.cpu_percent = max(cpu_s - self._cpu_s, 0.0) / (now - self._at) * 100
        self._known, self._cpu_s, self._at = known, cpu_s, now
        self.memory_bytes, self.processes = memory, len(known)
