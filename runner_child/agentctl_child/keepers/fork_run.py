"""The fork of the root of a run's tree, in the requested containment.

The containment is never weakened silently. If it is not available, the run is refused with a
reason and an alternative.
"""

import os
import signal
import time
from dataclasses import dataclass
from typing import Final

from agentctl_child.keepers.agent_process import AgentDescriptors, become_agent
from agentctl_child.keepers.confinement import Confinement, Seal, seal_against
from agentctl_child.keepers.death_chain import DeathChain
from agentctl_child.keepers.enclosure import enclosure_for, facts_of, namespaces_of
from agentctl_child.keepers.init import InitTask, run_init
from agentctl_child.keepers.launch_request import Descriptors
from agentctl_child.keepers.layers import Surroundings
from agentctl_child.keepers.namespace_tree import NamespaceTree
from agentctl_child.keepers.packet_pipe import PacketReader, small_pipe
from agentctl_child.keepers.refusal import CannotStartError, refused_by_system, refused_step
from agentctl_child.keepers.swept_tree import SweptTree
from agentctl_child.keepers.tree import Tree
from agentctl_child.sandbox import (
    clone,
    injected_failures,
    prctl,
    rlimits,
    signals,
    task_table,
    user_counters,
)
from agentctl_protocol.spawning import Launch
from agentctl_protocol.vocabulary import CONFINED, Containment, Sandbox

#: The supervisor's own ladder acts first, then the warden's timer, then init's timer.
DEADLINE_SLACK_S: Final = 0.1


@dataclass(frozen=True)
class Keepers:
    """The processes that watch over a run beside its warden, and their state ``outside`` of it.

    ``soft_descriptors``: the caller's soft limit on descriptors. The keepers have raised their
    own.
    """

    supervisor: int
    supervisor_pidfd: int
    spawner: int
    spawner_pidfd: int
    outside: Surroundings
    soft_descriptors: int | None = None


@dataclass(frozen=True)
class ForkedRun:
    """A tree that has just been made.

    ``report``: the agent's messages until it has started. ``deadline``: the time at which the
    warden's timer fires, on the monotonic clock.
    """

    tree: Tree
    report: PacketReader
    deadline: float | None


def fork_run(
    launch: Launch, given: Descriptors, keepers: Keepers, *, own_pidfd: int, process_share: int
) -> ForkedRun:
    """Fork init, or in the fallback the agent itself; called in the warden.

    Closes the descriptors of ``given`` that belong to the agent. ``process_share``: how many tasks
    the run may have of a limit that all runs share. Raises CannotStartError; then no process
    exists.
    """
    report, agents_report = small_pipe()
    agents = AgentDescriptors(
        stdin=given.stdin,
        stdout=given.stdout,
        stderr=given.stderr,
        channel_in=given.channel_in,
        channel_out=given.channel_out,
        begin=given.begin,
        report=agents_report,
    )
    deadline = None
    if launch.deadline_s is not None:
        deadline = time.monotonic() + launch.deadline_s + DEADLINE_SLACK_S
    _require(launch)
    injected_failures.arm("warden")
    tree: Tree
    if launch.containment is Containment.PID_NAMESPACE:
        tree = _fork_init(
            launch,
            agents,
            given.cgroup,
            keepers,
            own_pidfd=own_pidfd,
            deadline=deadline,
            process_share=process_share,
        )
    else:
        tree = _fork_agent(launch, agents, given.cgroup, keepers, process_share)
    # The channel and the pipes must end with the agent, not with this process.
    for descriptor in (given.launch, given.begin, *agents.handed_over(), agents_report):
        os.close(descriptor)
    return ForkedRun(tree, PacketReader(report), deadline)


def _require(launch: Launch) -> None:
    """Refuse a launch at strict that lacks namespaces or an own uid. Raises CannotStartError."""
    if launch.sandbox is not Sandbox.STRICT:
        return
    if launch.containment is not Containment.PID_NAMESPACE:
        raise CannotStartError(
            "sandbox",
            "the strict sandbox needs namespaces, and there are none to be had here",
            hint="See `agentctl doctor`; or --sandbox standard names a weaker level,"
            " without namespaces.",
        )
    if os.geteuid() == 0 and not launch.host_uid:
        raise CannotStartError("sandbox", "a run of root's needs a uid of its own, and has none")


def _fork_init(
    launch: Launch,
    agents: AgentDescriptors,
    cgroup: int | None,
    keepers: Keepers,
    *,
    own_pidfd: int,
    deadline: float | None,
    process_share: int,
) -> NamespaceTree:
    chain = DeathChain([own_pidfd, keepers.spawner_pidfd, keepers.supervisor_pidfd])
    if chain.broken:
        os._exit(1)
    orders, our_orders = small_pipe()
    our_words, words = small_pipe()
    for end in (our_orders, words):
        os.set_blocking(end, False)
    confinement = _confinement(
        launch, keepers, process_limit=_limit_in_a_namespace(launch, process_share)
    )
    task = InitTask(
        launch=launch,
        given=agents,
        confinement=confinement,
        enclosure=enclosure_for(launch, confinement.facts),
        orders=orders,
        words=words,
        chain=chain,
        deadline=None if deadline is None else deadline + DEADLINE_SLACK_S,
    )
    flags = namespaces_of(launch.sandbox, confinement.facts)
    try:
        if flags & clone.NEW_USER:
            user_counters.leave_the_caller(os.getuid())
        pid, pidfd = clone.fork(flags, cgroup)
    except OSError as error:
        raise refused_step("namespaces", launch.sandbox, error) from None
    if pid == 0:
        run_init(task)
    os.close(orders)
    os.close(words)
    return NamespaceTree(
        pid, pidfd, orders=our_orders, words=PacketReader(our_words), cgroup=cgroup
    )


def _fork_agent(
    launch: Launch,
    agents: AgentDescriptors,
    cgroup: int | None,
    keepers: Keepers,
    process_share: int,
) -> SweptTree:
    # All of this before the fork: an orphan that is born earlier would not become our child.
    prctl.become_subreaper()
    children = signals.open_signalfd([signal.SIGCHLD])
    confinement = _confinement(
        launch,
        keepers,
        subreaper=prctl.is_subreaper(),
        process_limit=_process_limit(launch, process_share),
        seal=_seal(launch, keepers),
    )
    try:
        pid, pidfd = clone.fork(0, cgroup)
    except OSError as error:
        raise refused_by_system("the run cannot be forked", error) from None
    if pid == 0:
        become_agent(launch, agents, confinement)
    return SweptTree(pid, pidfd, children, cgroup)


def _confinement(
    launch: Launch,
    keepers: Keepers,
    *,
    process_limit: int | None,
    subreaper: bool = False,
    seal: Seal | None = None,
) -> Confinement:
    return Confinement(
        containment=launch.containment,
        sandbox=launch.sandbox,
        outside=keepers.outside,
        host_uid=launch.host_uid,
        subreaper=subreaper,
        process_limit=process_limit,
        seal=seal,
        view=launch.view,
        network=launch.network,
        facts=facts_of(launch, os.geteuid()),
        soft_descriptors=keepers.soft_descriptors,
    )


def _limit_in_a_namespace(launch: Launch, share: int) -> int | None:
    """Return the limit if only the run's own processes are counted, else None.

    That is so if the run has a uid or a user namespace of its own.
    """
    confined = launch.sandbox in CONFINED
    if not confined or (os.geteuid() == 0 and launch.host_uid is None):
        return None
    return share


def _process_limit(launch: Launch, share: int) -> int | None:
    uid = launch.host_uid if launch.host_uid is not None else os.getuid()
    if uid == 0:  # the kernel does not count root's processes
        return None
    limit = min(rlimits.PROCESSES_PER_RUN, share)
    return limit + (0 if launch.host_uid else task_table.tasks_of(uid))


def _seal(launch: Launch, keepers: Keepers) -> Seal | None:
    if not launch.sealed:
        return None
    return seal_against(os.getpid(), keepers.spawner, keepers.supervisor)
