"""Collecting the dead: every orphan of a run is adopted by init or, in the fallback, the warden."""

import os
from collections.abc import Callable
from typing import Final

from agentctl_protocol.spawning import AgentExited

#: Children of whatever exit signal: a clone(2) with another one is hidden from plain wait.
_ALL_KINDS: Final = 0x4000_0000  # __WALL
_BATCH: Final = 256


class Reaper:
    """Reaps the children of this process and keeps account of them.

    ``living``: counts the processes of the run that are alive, when the agent has ended.
    ``end`` is the agent's own end; ``cpu_s`` and ``max_rss_bytes`` are of all that was
    reaped so far, with their own reaped descendants.
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
        """Reap whoever is dead; return True if there may be more dead than one batch."""
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
