"""The warden: one process per run, outside its sandbox, that can always end it.

It makes the tree, reports to the supervisor what happens to it, and holds the dead-man timer. It
lives until the tree is empty, and the tree does not outlive it. Four sources ask it to act: the
supervisor's packets, a signal from a client while the supervisor is frozen, a keeper's death, and
the timer. Each request is first turned into one of three orders.
"""

import contextlib
import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec

from agentctl_child.keepers import process_title
from agentctl_child.keepers.death_chain import DeathChain, poll_ms
from agentctl_child.keepers.failpoints import reach
from agentctl_child.keepers.fork_run import DEADLINE_SLACK_S, ForkedRun, Keepers, fork_run
from agentctl_child.keepers.launch_request import BadLaunchError, Descriptors, read_launch
from agentctl_child.keepers.layers import SCHEDULED_BELOW
from agentctl_child.keepers.packet_pipe import PacketReader
from agentctl_child.keepers.refusal import CannotStartError, refused_by_system
from agentctl_child.keepers.tree import Remains, Tree
from agentctl_child.sandbox import pidfd, scheduling, signals
from agentctl_protocol.spawning import (
    AgentExited,
    Contained,
    Deadline,
    Exited,
    FromInit,
    InitReady,
    Kill,
    Launch,
    Order,
    Refused,
    Running,
    Status,
    Terminate,
    pack,
)

_PACKET_BYTES: Final = 65_536
#: The kernel lets ordinary users write once in 100 ms; other processes start runs, too.
_LIGHTEN_AGAIN_S: Final = 0.11
_LIGHTEN_WITHIN_S: Final = 30.0

_decode_order = msgspec.msgpack.Decoder(Order).decode
_decode_report = msgspec.msgpack.Decoder(Running | Refused).decode


def run_warden(
    given: Descriptors, run: str, keepers: Keepers, chain: DeathChain, process_share: int
) -> NoReturn:
    """Run as the warden of a run, right after the fork. Never returns, never raises.

    ``process_share``: as in `fork_run`.
    """
    status = socket.socket(fileno=given.status)
    try:
        reach("warden:forked")
        chain.arm(signal.SIGCONT)
        # A session of its own: a Ctrl-Z at the supervisor's terminal must not stop the timer.
        os.setsid()
        scheduling.hasten()
        process_title.set_title("agentctl-warden", f"agentctl warden {run}")
        own_pidfd = pidfd.open_own()
        launch = _read(given)
        forked = fork_run(launch, given, keepers, own_pidfd=own_pidfd, process_share=process_share)
        reach("warden:cloned")
        warden = _Warden(forked, status, chain, own_pidfd)
        last = warden.run()
        if isinstance(last, Exited) and (last.orphaned or chain.broken):
            _leave(launch.exit_file, last)
    except CannotStartError as error:
        last = error.packet()
    except OSError as error:
        last = refused_by_system("the run's warden", error).packet()
    except BaseException as error:  # noqa: BLE001 - it must not return into the spawner
        sys.stderr.write(f"agentctl warden {run}: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
        os._exit(1)  # the chain, or the spawner's sweep, then ends the run
    _say(status, last)
    _close(status)
    os._exit(0)


def _read(given: Descriptors) -> Launch:
    try:
        launch = read_launch(given.launch)
    except BadLaunchError as error:
        raise CannotStartError("system", f"the launch cannot be used: {error}") from None
    reach("warden:decoded")
    return launch


def _say(status: socket.socket, packet: Status) -> None:
    # A supervisor that is gone cannot be told.
    with contextlib.suppress(OSError):
        status.send(pack(packet), socket.MSG_DONTWAIT)


def _leave(path: bytes, last: Exited) -> None:
    """Write our last message to a file for the next reader of the run: no supervisor hears it."""
    if not path:
        return
    # Written whole or not at all. If the directory was removed meanwhile, nothing is lost.
    with contextlib.suppress(OSError):
        temporary = path + b".new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(msgspec.json.encode(last))
        os.rename(temporary, path)


def _close(status: socket.socket) -> None:
    """Read the requests that are still queued.

    Closing with unread data would reset the connection. The supervisor's next read would then fail
    before it returned our last message.
    """
    with contextlib.suppress(OSError):
        status.shutdown(socket.SHUT_RD)
        while status.recv(_PACKET_BYTES, socket.MSG_DONTWAIT):
            pass


@dataclass
class _Timer:
    """The dead-man timer: on the monotonic clock, only ever shortened."""

    at: float | None

    def shorten(self, at: float) -> None:
        self.at = at if self.at is None else min(at, self.at)

    @property
    def has_fired(self) -> bool:
        return self.at is not None and time.monotonic() >= self.at

    @property
    def left_ms(self) -> float | None:
        return poll_ms(self.at)


class _Warden:
    def __init__(
        self, forked: ForkedRun, status: socket.socket, chain: DeathChain, own_pidfd: int
    ) -> None:
        self.tree: Tree = forked.tree
        self.timer = _Timer(forked.deadline)
        self.status = status
        self.chain = chain
        self.own_pidfd = own_pidfd
        self.orders = signals.open_signalfd([signal.SIGUSR1, signal.SIGUSR2])
        self.report: PacketReader | None = forked.report
        self.running: Running | None = None
        self.refused: Refused | None = None
        self.agent_end = AgentExited()
        self.killed = self.deadline = self.orphaned = False
        self._lighten_until: float | None = None

    def run(self) -> Exited | Refused:
        """Watch over the tree until it is over; return the last word."""
        self._hear_tree()  # an agent that exists already waits until that is known
        while not self.killed:
            ready = self._wait()
            self._hear_tree()
            self._hear_report()
            if self.tree.ended:
                break
            self._lighten()
            for order in self._read_orders(ready):
                self._execute(order)
        return self._conclude()

    def _wait(self) -> set[int]:
        poll = select.poll()
        for descriptor in (self.status.fileno(), self.orders, *self.chain, *self.tree.sources()):
            poll.register(descriptor, select.POLLIN)
        if self.report is not None:
            poll.register(self.report.fileno(), select.POLLIN)
        left_ms = self.timer.left_ms
        if self._lighten_until is not None:
            again_ms = _LIGHTEN_AGAIN_S * 1000
            left_ms = again_ms if left_ms is None else min(left_ms, again_ms)
        return {descriptor for descriptor, _ in poll.poll(left_ms)}

    # --- what the run says ------------------------------------------------

    def _hear_tree(self) -> None:
        for packet in self.tree.advance():
            self._note(packet)

    def _note(self, packet: FromInit) -> None:
        match packet:
            case InitReady():
                self._announce(packet.namespace or None)
            case Refused():
                # A later one is init's own failure: the agent had begun. `running` decides, not
                # the report pipe: init's end closes that pipe, maybe before its message is read.
                if self.running is None:
                    self.refused = packet
            case AgentExited():
                self.agent_end = packet
            case Running():
                pass

    def _announce(self, namespace: int | None) -> None:
        packet = Contained(
            warden=pidfd.identity_of(os.getpid()),
            root=self.tree.root,
            containment=self.tree.containment,
            namespace=namespace,
        )
        try:
            socket.send_fds(
                self.status,
                [pack(packet)],
                [self.own_pidfd, self.tree.root_pidfd],
                socket.MSG_DONTWAIT,
            )
        except OSError as error:
            if error.errno == errno.ETOOMANYREFS:
                # Only we could end the run, so it must not begin.
                what = "the run's keepers cannot be handed over"
                self.refused = refused_by_system(what, error).packet()
                self.killed = True
            # Otherwise the supervisor is gone, and cannot be told.
        reach("warden:contained")

    def _hear_report(self) -> None:
        while self.report is not None and (packets := self.report.read()) != []:
            for packet in packets or ():
                match _decode_report(packet):
                    case Refused() as refused:
                        self.refused = refused
                    case running:
                        self.running = running
            if packets is not None:
                continue
            self.report.close()
            self.report = None
            # Only now: exec has closed the agent's end, so it has succeeded.
            if self.running is not None and self.refused is None:
                _say(self.status, self.running)
                if SCHEDULED_BELOW in self.running.layers:
                    self._lighten_until = time.monotonic() + _LIGHTEN_WITHIN_S

    def _lighten(self) -> None:
        until = self._lighten_until
        if until is not None and (self.tree.lighten() or time.monotonic() >= until):
            self._lighten_until = None

    # --- what it is asked for -------------------------------------------

    def _read_orders(self, ready: set[int]) -> Iterator[Order]:
        if self.timer.has_fired:
            self.deadline = True
            yield Kill()
        if ready.intersection(self.chain):
            self.orphaned = True
            yield Kill()
        if self.orders in ready:
            came = signals.read_signalfd(self.orders)
            if signal.SIGUSR1 in came:
                yield Terminate()
            if signal.SIGUSR2 in came:
                yield Kill()
        if self.status.fileno() in ready:
            try:
                data = self.status.recv(_PACKET_BYTES)
            except ConnectionError:
                data = b""
            # The supervisor closed its end: it is gone, or it wants this run to end.
            self.orphaned = self.orphaned or not data
            yield _decode_order(data) if data else Kill()

    def _execute(self, order: Order) -> None:
        match order:
            case Terminate():
                self.tree.terminate()
            case Kill():
                self.killed = True
            case Deadline(after_s=after_s):
                self.timer.shorten(time.monotonic() + after_s + DEADLINE_SLACK_S)
                self.tree.shorten(after_s + 2 * DEADLINE_SLACK_S)

    # --- how it ended ------------------------------------------------------

    def _conclude(self) -> Exited | Refused:
        self.tree.kill()
        remains = self.tree.collect()
        self._hear_tree()
        self._hear_report()
        empty = not remains.survivors and remains.blocked_by is None
        if self.refused is not None and empty:
            return self.refused
        return self._exited(remains)

    def _exited(self, remains: Remains) -> Exited:
        end = self.agent_end
        unexplained = end.code is None and end.signal is None and not self.killed
        return Exited(
            code=end.code,
            signal=end.signal,
            cpu_s=remains.cpu_s,
            max_rss_bytes=remains.max_rss_bytes,
            left=end.left,
            at_ns=time.time_ns(),
            # Init's own timer fires if this process was stopped until after the deadline.
            deadline=self.deadline or (unexplained and self.timer.has_fired),
            survivors=remains.survivors,
            blocked_by=remains.blocked_by,
            orphaned=self.orphaned,
        )
