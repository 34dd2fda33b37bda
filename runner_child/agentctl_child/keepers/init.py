"""Init: pid 1 of a run's pid namespace. When it ends, the kernel ends every process in it.

Init prepares what the agent sees. It confines itself, and by that all processes that it starts. It
forks the agent, reaps dead processes, and ends with the agent. It holds no descriptor of the
supervisor and no socket. It takes orders by pipe and never by signal, because a process inside the
run could send a signal.
"""

import contextlib
import os
import select
import signal
import time
from dataclasses import dataclass
from typing import NoReturn

import msgspec

from agentctl_child.keepers import process_title
from agentctl_child.keepers.agent_process import (
    AgentDescriptors,
    become_agent,
    confine,
    spawn_agent,
)
from agentctl_child.keepers.confinement import Confinement
from agentctl_child.keepers.death_chain import DeathChain, poll_ms
from agentctl_child.keepers.enclosure import Enclosure
from agentctl_child.keepers.failpoints import reach
from agentctl_child.keepers.layers import unified_cgroup
from agentctl_child.keepers.packet_pipe import PacketReader, write_packet
from agentctl_child.keepers.reaping import Reaper
from agentctl_child.keepers.refusal import why_ended
from agentctl_child.keepers.sweep import living
from agentctl_child.sandbox import descriptors, injected_failures, namespaces, prctl, signals
from agentctl_protocol.spawning import (
    Deadline,
    InitReady,
    Kill,
    Launch,
    Order,
    Terminate,
    pack,
)

_decode_order = msgspec.msgpack.Decoder(Order).decode


@dataclass(frozen=True)
class InitTask:
    """The data that init needs, inherited from the warden over the clone.

    ``orders`` and ``words`` are init's ends of the pipes from and to the warden. ``words`` is
    non-blocking. ``deadline`` is on the monotonic clock.
    """

    launch: Launch
    given: AgentDescriptors
    confinement: Confinement
    enclosure: Enclosure
    orders: int
    words: int
    chain: DeathChain
    deadline: float | None


def run_init(task: InitTask) -> NoReturn:
    """Run as init. Never returns, never raises."""
    try:
        # The chain first: the warden may be dead already, and then no process would kill us.
        task.chain.arm()
        injected_failures.arm("init")
        _Init(task).run()
    except BaseException as error:  # noqa: BLE001 - any error must be reported
        write_packet(task.words, pack(why_ended("the run's init", error)))
    finally:
        os._exit(1)


def _others() -> int:
    """Count the living processes in the namespace except this one."""
    return living(int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1")


class _Init:
    def __init__(self, task: InitTask) -> None:
        self.task = task
        self.deadline = task.deadline
        self.orders = PacketReader(task.orders)
        self.children = signals.open_signalfd([signal.SIGCHLD])

    def run(self) -> NoReturn:
        task, given = self.task, self.task.given
        self._close_all_but(*given.handed_over(), given.begin, given.report)
        reach("init:started")
        write_packet(task.words, pack(InitReady(namespace=namespaces.inode("pid"))))
        process_title.set_title("agentctl-init", f"agentctl init {task.launch.run}")
        layers = self._set_up()
        reach("init:confined")
        self._wait_to_begin()
        agent = self._start_agent(layers)
        reach("init:forked")
        self._look_after(Reaper(agent, _others))

    def _set_up(self) -> tuple[str, ...]:
        task = self.task
        # Read the name that is valid outside: our cgroup namespace will soon hide it.
        cgroup = unified_cgroup()
        task.enclosure.enter()
        reach("init:mounted")
        # Init needs no more privileges than its agent, and ends with it. The agent cannot trace or
        # write to it, because it is not dumpable.
        layers = confine(task.launch, task.confinement, cgroup)
        prctl.set_dumpable(False)
        # The change of the uid has cleared the death signal.
        task.chain.arm()
        return layers

    def _wait_to_begin(self) -> None:
        begin = self.task.given.begin
        # Orders are not read here: a SIGTERM that comes now is meant for the agent and waits for
        # it.
        while begin not in self._wait(begin):
            pass
        if not os.read(begin, 1):
            os._exit(0)

    def _start_agent(self, layers: tuple[str, ...]) -> int:
        task = self.task
        if task.launch.argv or task.launch.python:
            pid = spawn_agent(task.launch, task.given, layers)
        else:
            pid = os.fork()
            if pid == 0:
                become_agent(task.launch, task.given, task.confinement, confined=layers)
        # The channel and the pipes must end with the agent, not with this process.
        self._close_all_but()
        return pid

    def _close_all_but(self, *more: int) -> None:
        own = (0, 1, 2, self.children, self.orders.fileno(), self.task.words, *self.task.chain)
        descriptors.close_all_but([*own, *more])

    def _look_after(self, reaper: Reaper) -> NoReturn:
        more = True
        orders = self.orders.fileno()
        while True:
            ready = self._wait(orders, self.children, at_once=more)
            if orders in ready:
                self._obey_all()
            if self.children in ready:
                signals.read_signalfd(self.children)
                more = True
            if more:
                more = reaper.reap()
            if reaper.end is not None:
                reach("init:reaped")
                write_packet(self.task.words, pack(reaper.end))
                os._exit(0)

    def _wait(self, *descriptors: int, at_once: bool = False) -> set[int]:
        """Return the readable *descriptors*. Exit if the chain is broken or the timer fired."""
        poll = select.poll()
        for descriptor in (*descriptors, *self.task.chain):
            poll.register(descriptor, select.POLLIN)
        ready = {one for one, _ in poll.poll(0 if at_once else poll_ms(self.deadline))}
        if ready.intersection(self.task.chain) or self._is_late():
            os._exit(0)
        return ready

    def _is_late(self) -> bool:
        """True if the second dead-man timer has fired; it matters if the warden is stopped."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def _obey_all(self) -> None:
        packets = self.orders.read()
        if packets is None:  # the warden is gone
            os._exit(0)
        for packet in packets:
            self._obey(_decode_order(packet))

    def _obey(self, order: Order) -> None:
        match order:
            case Terminate():
                # All processes except this one. A stopped process acts only after the SIGCONT.
                for number in (signal.SIGTERM, signal.SIGCONT):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(-1, number)
            case Kill():
                os._exit(0)
            case Deadline(after_s=after_s):
                at = time.monotonic() + after_s
                self.deadline = at if self.deadline is None else min(at, self.deadline)
