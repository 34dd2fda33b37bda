"""The set-up of init's new namespaces, before init gives up any privilege."""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from agentctl_child.keepers import steps
from agentctl_child.keepers.refusal import refused_part
from agentctl_child.keepers.steps import Fact
from agentctl_child.sandbox import (
    clone,
    core_dumps,
    mounts,
    namespaces,
    network,
    oom_score,
    prctl,
    syscalls,
    user_counters,
)
from agentctl_child.sandbox.private_root import PrivateRoot, UnfitPartError
from agentctl_protocol.spawning import Launch, Part
from agentctl_protocol.vocabulary import Containment, Network, Sandbox

#: The host name that a run at strict sees.
HOST_NAME: Final = "agentctl"


@dataclass(frozen=True)
class Enclosure:
    """The namespaces of one run.

    ``uid``, ``gid``: the owner of the run inside the namespaces. ``own_uid``: True if they are not
    the caller's, so that the caller's files must be shown as the run's.
    """

    level: Sandbox
    facts: frozenset[Fact]
    uid: int
    gid: int
    own_uid: bool = False
    view: tuple[Part, ...] = ()

    def enter(self) -> None:
        """Prepare the namespaces that this process was cloned into for an agent.

        The throwaway process that finds out what works on this machine calls this too. Raises
        CannotStartError.
        """
        acts: dict[str, Callable[[], None]] = {
            "identity": self._identity,
            "user's counters": self._users_counters,
            "memory dumps": self._memory_dumps,
            "out-of-memory rank": self._out_of_memory_rank,
            "loopback": network.raise_loopback,
            "host name": self._host_name,
            "cgroup namespace": namespaces.hide_cgroups_above,
            "private root": self._private_root,
            "own /proc": mounts.cover_proc,
            "control groups": mounts.make_cgroups_read_only,
        }
        prctl.set_dumpable(False)
        steps.carry_out("enclosure", self.level, self.facts, acts)

    def _identity(self) -> None:
        with prctl.owning_proc_files():
            namespaces.map_own_identity(self.uid, self.gid)

    def _users_counters(self) -> None:
        with prctl.owning_proc_files():
            user_counters.bound_namespace()

    def _out_of_memory_rank(self) -> None:
        with prctl.owning_proc_files():
            oom_score.stand_first()

    def _memory_dumps(self) -> None:
        with prctl.owning_proc_files():
            core_dumps.leave_memory_out()

    def _host_name(self) -> None:
        syscalls.call("sethostname", socket.sethostname, HOST_NAME)

    def _private_root(self) -> None:
        root = PrivateRoot(self.view, self.uid, self.gid, map_owners=self.own_uid)
        try:
            root.enter()
        except UnfitPartError as error:
            raise refused_part(error.path, str(error), error.hint, error.cause) from None


def facts_of(launch: Launch, uid: int) -> frozenset[Fact]:
    """Return the facts that decide which steps are taken, for a caller with this uid. Pure."""
    facts: set[Fact] = set()
    if launch.containment is Containment.PID_NAMESPACE:
        # Without root's CAP_SYS_ADMIN, only a user namespace permits the other namespaces.
        facts |= {"pid namespace"} if uid == 0 else {"pid namespace", "user namespace"}
    else:
        facts.add("fallback")
    if launch.host_uid is not None:
        facts.add("own uid")
    if launch.network is Network.NONE:
        facts.add("network none")
    return frozenset(facts)


def namespaces_of(level: Sandbox, facts: frozenset[Fact]) -> int:
    """Return the namespaces that a run's init is cloned into, as flags of `clone.fork`. Pure."""
    flags = clone.NEW_PIDS | clone.NEW_MOUNTS
    if "user namespace" in facts:
        flags |= clone.NEW_USER
    if level is Sandbox.STRICT:
        flags |= clone.NEW_IPC | clone.NEW_UTS
        if "network none" in facts:
            flags |= clone.NEW_NETWORK
    return flags


def enclosure_for(launch: Launch, facts: frozenset[Fact]) -> Enclosure:
    """Return the enclosure of a run; must be called with the caller's own uid."""
    own = launch.host_uid
    return Enclosure(
        level=launch.sandbox,
        facts=facts,
        uid=os.geteuid() if own is None else own,
        gid=os.getegid() if own is None else own,
        own_uid=own is not None,
        view=launch.view,
    )
