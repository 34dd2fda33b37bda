"""What a warden holds: the process tree of one run, by whichever mechanism."""

from typing import Protocol

from agentctl_protocol.spawning import FromInit, ProcessIdentity
from agentctl_protocol.vocabulary import Containment


class Remains:
    """What was left when a tree had been killed.

    ``cpu_s`` and ``max_rss_bytes`` are of all that died in it.  ``blocked_by`` is a process
    outside that holds up the end of init.
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
    """A run's processes.  Nothing here blocks but `collect`."""

    containment: Containment
    #: The process with which the tree ends: init, or the agent where there is none.
    root: ProcessIdentity
    root_pidfd: int

    def sources(self) -> tuple[int, ...]:
        """Descriptors that become readable when `advance` has something to say."""

    def advance(self) -> list[FromInit]:
        """What has happened in the tree since the last call."""

    @property
    def ended(self) -> bool:
        """Whether the run is over: all that is left in the tree is to be killed."""

    def lighten(self) -> bool:
        """Make the session of the agent lighter (`scheduling`); False: to be tried again."""

    def terminate(self) -> None:
        """SIGTERM, then SIGCONT, to every process."""

    def shorten(self, after_s: float) -> None:
        """Tell a second dead-man timer, where there is one."""

    def kill(self) -> None:
        """SIGKILL to every process; does not wait."""

    def collect(self) -> Remains:
        """Wait until the tree is empty, killing what still appears in it."""
