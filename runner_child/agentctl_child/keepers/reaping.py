"""The reaping of a run's dead processes by the process that adopts its orphans.

That process is init or, in the fallback, the warden.
"""

import os
from collections.abc import Callable
from typing import Final

from agentctl_protocol.spawning import AgentExited

#: Children with any exit signal: plain wait does not see a clone(2) child with another signal.
_ALL_KINDS: Final = 0x4000_0000  # __WALL
_BATCH: Final = 256


class Reaper:
    """Reaps the children of this process and sums up what they used.

    ``living`` is called when the agent has ended; it counts the run's processes that are still
    alive. ``end`` is the agent's own end. ``cpu_s`` and ``max_rss_bytes`` cover all processes that
    were reaped so far, with the descendants that those had reaped.
    """

    def __init__(self, agent: int, living: Callable[[], int]) -> None:
        self.agent = agent
        self._living = living
        self.end: AgentExited | None = None
        self.childless = False
        self.cpu_s = 0.0
        self.max_rss_bytes = 0

    def __repr__(self) -> str:
        return f"<Reaper agent={self.agent} end={self.end} childless={self.childless}>"

    def reap(self, *, batch: int = _BATCH) -> bool:
        """Reap dead children; return True if more than one batch may be dead."""
        for _ in range(batch):
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG | _ALL_KINDS)
            except ChildProcessError:
                self.childless = True
                return False
            if pid == 0:
                self.childless = False
                return False
            self.cpu_s += usage.ru_utime + usage.ru_stime
            self.max_rss_bytes = max(self.max_rss_bytes, usage.ru_maxrss * 1024)
            if pid == self.agent and self.end is None:
                code = os.waitstatus_to_exitcode(status)
                self.end = AgentExited(
                    code=code if code >= 0 else None,
                    signal=-code if code < 0 else None,
                    cpu_s=usage.ru_utime + usage.ru_stime,
                    max_rss_bytes=usage.ru_maxrss * 1024,
                    left=self._living(),
                )
        return True
