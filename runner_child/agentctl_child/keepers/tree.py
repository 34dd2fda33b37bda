"""The interface of a run's process tree, as a warden uses it for either mechanism."""

from typing import Protocol

from agentctl_protocol.spawning import FromInit, ProcessIdentity
from agentctl_protocol.vocabulary import Containment


class Remains:
    """The state that is left after a tree was killed.

    ``cpu_s`` and ``max_rss_bytes`` cover all processes that died in it. ``blocked_by`` is a
    process outside that delays the end of init.
    """

    def __init__(
        self,
        *,
        cpu_s: float = 0.0,
        max_rss_bytes: int = 0,
        survivors: tuple[ProcessIdentity, ...] = (),
        blocked_by: int | None = None,
    ) -> None:
        self.cpu_s = cpu_s
        self.max_rss_bytes = max_rss_bytes
        self.survivors = survivors
        self.blocked_by = blocked_by


class Tree(Protocol):
    """The processes of a run. No method blocks except `collect`."""

    containment: Containment
    #: The process with which the tree ends: init, or the agent if there is no init.
    root: ProcessIdentity
    root_pidfd: int

    def sources(self) -> tuple[int, ...]:
        """Return descriptors that become readable when `advance` has something to report."""

    def advance(self) -> list[FromInit]:
        """Return what has happened in the tree since the last call."""

    @property
    def ended(self) -> bool:
        """True if the run is over: all processes that are left in the tree are to be killed."""

    def lighten(self) -> bool:
        """Make the agent's session lighter (`scheduling`); return False to be tried again."""

    def terminate(self) -> None:
        """Send SIGTERM, then SIGCONT, to every process."""

    def shorten(self, after_s: float) -> None:
        """Shorten the second dead-man timer, if there is one."""

    def kill(self) -> None:
        """Send SIGKILL to every process; does not wait."""

    def collect(self) -> Remains:
        """Wait until the tree is empty; kill processes that still appear in it."""
