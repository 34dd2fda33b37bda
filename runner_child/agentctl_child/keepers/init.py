"""Init: pid 1 of a run's pid namespace.  When it ends, the kernel ends everything in it.

It makes what the agent sees, confines itself and with that all that it starts, forks the
agent, reaps whoever dies and ends with the agent.  It holds no descriptor of the
supervisor's and takes orders by socket, never by signal, since what it can be
signalled by could come from inside.
"""

import contextlib
import os
import select
import signal
import socket
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

_PACKET_BYTES = 4096
_decode_order = msgspec.msgpack.Decoder(Order).decode


@dataclass(frozen=True)
class InitTask:
    """All that init needs, inherited from the warden over the clone.

    ``deadline`` is on the monotonic clock.
    """

    launch: Launch
    given: AgentDescriptors
    confinement: Confinement
    enclosure: Enclosure
    words: socket.socket
    chain: DeathChain
    deadline: float | None


def run_init(task: InitTask) -> NoReturn:
    """Be init.  Never returns, never raises."""
    try:
        # First the chain: the warden may be dead already, and then nobody would kill us.
        task.chain.arm()
        injected_failures.arm("init")
        _Init(task).run()
    except BaseException as error:  # noqa: BLE001 - whatever it is, somebody is to know of it
        _say(task.words, pack(why_ended("the run's init", error)))
    finally:
        os._exit(1)


def _say(words: socket.socket, data: bytes) -> None:
    # A warden that is gone cannot be told, and the chain ends us.
    with contextlib.suppress(OSError):
        words.send(data, socket.MSG_DONTWAIT)


def _others() -> int:
    """How many processes but ourselves are alive in the namespace."""
    return living(int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1")


class _Init:
    def __init__(self, task: InitTask) -> None:
        self.task = task
        self.deadline = task.deadline
        self.children = signals.open_signalfd([signal.SIGCHLD])

    def run(self) -> NoReturn:
        task, given = self.task, self.task.given
        self._close_all_but(given.stdin, given.stdout, given.stderr, given.channel, given.report)
        reach("init:started")
        _say(task.words, pack(InitReady(namespace=namespaces.inode("pid"))))
        process_title.set_title("agentctl-init", f"agentctl init {task.launch.run}")
        layers = self._set_up()
        reach("init:confined")
        agent = self._start_agent(layers)
        reach("init:forked")
        self._look_after(Reaper(agent, _others))

    def _set_up(self) -> tuple[str, ...]:
        task = self.task
        # As it is called outside: soon our cgroup namespace will hide that.
        cgroup = unified_cgroup()
        task.enclosure.enter()
        reach("init:mounted")
        # Init needs no more power than its agent, and shares its fate.  What keeps the
        # agent's hands off it is that it is not dumpable.
        layers = confine(task.launch, task.confinement, cgroup)
        prctl.set_dumpable(False)
        # Changing the uid has cleared it.
        task.chain.arm()
        return layers

    def _start_agent(self, layers: tuple[str, ...]) -> int:
        task = self.task
        if task.launch.argv or task.launch.python:
            pid = spawn_agent(task.launch, task.given, layers)
        else:
            pid = os.fork()
            if pid == 0:
                become_agent(task.launch, task.given, task.confinement, confined=layers)
        # The channel and the pipes must end with the agent and not with us.
        self._close_all_but()
        return pid

    def _close_all_but(self, *more: int) -> None:
        own = (0, 1, 2, self.children, self.task.words.fileno(), *self.task.chain)
        descriptors.close_all_but([*own, *more])

    def _look_after(self, reaper: Reaper) -> NoReturn:
        words = self.task.words
        poll = select.poll()
        for descriptor in (words.fileno(), self.children, *self.task.chain):
            poll.register(descriptor, select.POLLIN)
        more = True
        while True:
            ready = {
                descriptor for descriptor, _ in poll.poll(0 if more else poll_ms(self.deadline))
            }
            if ready.intersection(self.task.chain) or self._is_late():
                os._exit(0)
            if words.fileno() in ready:
                self._obey()
            if self.children in ready:
                signals.read_signalfd(self.children)
                more = True
            if more:
                more = reaper.reap()
            if reaper.end is not None:
                reach("init:reaped")
                _say(words, pack(reaper.end))
                os._exit(0)

    def _is_late(self) -> bool:
        """The second dead-man timer: it counts if the warden has been stopped."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def _obey(self) -> None:
        data = self.task.words.recv(_PACKET_BYTES)
        if not data:  # the warden is gone
            os._exit(0)
        match _decode_order(data):
            case Terminate():
                # All but ourselves; a stopped process answers only after the SIGCONT.
                for number in (signal.SIGTERM, signal.SIGCONT):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(-1, number)
            case Kill():
                os._exit(0)
            case Deadline(after_s=after_s):
                at = time.monotonic() + after_s
                self.deadline = at if self.deadline is None else min(at, self.deadline)
