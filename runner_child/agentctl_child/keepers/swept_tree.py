"""A tree that is held together only by parent links: the fallback without a pid namespace.

The warden is a subreaper, so a process that loses its parent becomes a child of the warden. If the
warden has no child left, no process of the run is left.
"""

import os
import signal

from agentctl_child.keepers.reaping import Reaper
from agentctl_child.keepers.sweep import descendants, living, signal_all, sweep
from agentctl_child.keepers.tree import Remains
from agentctl_child.sandbox import pidfd, scheduling, signals
from agentctl_child.sandbox.cgroup import kill_cgroup
from agentctl_protocol.spawning import FromInit, InitReady, ProcessIdentity
from agentctl_protocol.vocabulary import Containment


class SweptTree:
    """The processes of a run below the warden itself."""

    containment = Containment.SUBREAPER
    namespace = None

    def __init__(self, pid: int, agent: int, children: int, cgroup: int | None) -> None:
        self.root = pidfd.identity_of(pid)
        self.root_pidfd = agent
        self._reaper = Reaper(pid, lambda: living(descendants(os.getpid())))
        self._children = children
        self._cgroup = cgroup
        self._announced = self._end_told = False

    def __repr__(self) -> str:
        return f"<SweptTree {self._reaper!r}>"

    def sources(self) -> tuple[int, ...]:
        """Return the signalfd for SIGCHLD."""
        return (self._children,)

    def advance(self) -> list[FromInit]:
        """Reap dead processes and report the agent's end."""
        said: list[FromInit] = []
        if not self._announced:
            self._announced = True
            said.append(InitReady())
        signals.read_signalfd(self._children)
        self._reap_all()
        if self._reaper.end is not None and not self._end_told:
            self._end_told = True
            said.append(self._reaper.end)
        return said

    @property
    def ended(self) -> bool:
        """True if the agent is dead: the processes that it left behind must be killed."""
        return self._reaper.end is not None

    def lighten(self) -> bool:
        """Make the agent's own session lighter."""
        return scheduling.lighten_session(self.root.pid, os.getpid())

    def terminate(self) -> None:
        """Send SIGTERM, then SIGCONT: a stopped process acts only after the SIGCONT."""
        for number in (signal.SIGTERM, signal.SIGCONT):
            signal_all(os.getpid(), number)

    def shorten(self, after_s: float) -> None:
        """Do nothing: the fallback has no second timer."""

    def kill(self) -> None:
        """Kill what can be killed at once; `collect` does the rest."""
        if self._cgroup is not None:
            kill_cgroup(self._cgroup)

    def collect(self) -> Remains:
        """Sweep until we have no children."""
        self._reaper.reap()
        survivors: tuple[ProcessIdentity, ...] = ()
        if not self._reaper.childless:
            survivors = sweep(
                os.getpid(),
                reap=self._reap_all,
                is_empty=lambda: self._reaper.childless,
            )
        return Remains(
            cpu_s=self._reaper.cpu_s,
            max_rss_bytes=self._reaper.max_rss_bytes,
            survivors=survivors,
        )

    def _reap_all(self) -> None:
        while self._reaper.reap():
            pass
