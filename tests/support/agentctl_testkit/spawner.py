"""A stand-in for the supervisor: it drives a real spawner, synchronously, with no event loop."""

import array
import contextlib
import itertools
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from agentctl_protocol.spawning import (
    Contained,
    Exited,
    Launch,
    LaunchPacket,
    Order,
    Part,
    Refused,
    Running,
    SpawnerReady,
    Status,
    pack,
)
from agentctl_protocol.vocabulary import Containment, Network, Sandbox
from agentctl_testkit.channel import ChannelEnd, channel_pair

_decode_status = msgspec.msgpack.Decoder(Status).decode
PATIENCE_S = 20.0
RUN_UID: Final = 0x7000_0000 + os.getpid()
"""The uid of root's runs here: nothing on a machine has it, and no test beside this process."""
_numbers = itertools.count(1)


@dataclass
class LaunchedRun:
    """A run that the spawner was asked for: the supervisor's ends, and what was said so far."""

    run: str
    status: socket.socket
    begin: int
    channel: ChannelEnd
    output: int
    packets: list[Status] = field(default_factory=list)
    pidfds: list[int] = field(default_factory=list)
    closed: bool = False

    def order(self, order: Order) -> None:
        self.status.send(pack(order))

    def read(self, timeout_s: float = PATIENCE_S) -> Status | None:
        """The next packet; None at the end of the socket, TimeoutError if nothing comes."""
        if not select.select([self.status], [], [], timeout_s)[0]:
            raise TimeoutError(f"the warden of {self.run} says nothing; so far {self.packets}")
        try:
            data, received, _, _ = socket.recv_fds(self.status, 65_536, 4)
        except ConnectionResetError:
            # A warden was killed with an order unread.  What it had said before is still there.
            data, received, _, _ = socket.recv_fds(self.status, 65_536, 4)
        self.pidfds += received
        if not data:
            self.closed = True
            return None
        packet: Status = _decode_status(data)
        self.packets.append(packet)
        return packet

    def until(self, kind: type, timeout_s: float = PATIENCE_S) -> Status:
        end = time.monotonic() + timeout_s
        while True:
            packet = self.read(max(0.0, end - time.monotonic()))
            if packet is None:
                raise AssertionError(f"the warden left without {kind.__name__}: {self.packets}")
            if isinstance(packet, kind):
                return packet

    def contained(self) -> Contained:
        packet = self.until(Contained)
        assert isinstance(packet, Contained)
        return packet

    def running(self) -> Running:
        packet = self.until(Running)
        assert isinstance(packet, Running)
        return packet

    def exited(self, timeout_s: float = PATIENCE_S) -> Exited:
        packet = self.until(Exited, timeout_s)
        assert isinstance(packet, Exited)
        return packet

    def refused(self) -> Refused:
        packet = self.until(Refused)
        assert isinstance(packet, Refused)
        return packet

    def drain(self, timeout_s: float = PATIENCE_S) -> list[Status]:
        """Everything until the warden has closed its end."""
        end = time.monotonic() + timeout_s
        while self.read(max(0.0, end - time.monotonic())) is not None:
            pass
        return self.packets

    def output_bytes(self) -> bytes:
        """All that the run wrote; waits until nobody holds the pipe."""
        data = b""
        while part := os.read(self.output, 65_536):
            data += part
        return data

    def close(self) -> None:
        self.status.close()
        self.channel.close()
        for descriptor in (self.begin, self.output, *self.pidfds):
            os.close(descriptor)
        self.pidfds.clear()


class SpawnerStandIn:
    """Starts a spawner as the supervisor does.

    ``supervisor``: the process whose death ends it, this one unless told otherwise.
    ``python``: the interpreter of a spawner for somebody else, and ``popen`` who that is.
    ``wrapper``: a program that starts the interpreter.
    """

    def __init__(
        self,
        *,
        env: Mapping[str, str] | None = None,
        supervisor: int | None = None,
        arguments: Sequence[str] = (),
        python: str = sys.executable,
        wrapper: Sequence[str] = (),
        popen: Mapping[str, Any] | None = None,
    ) -> None:
        self.requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid = os.getpid() if supervisor is None else supervisor
        pidfd = os.pidfd_open(pid)
        self.process = subprocess.Popen(
            [
                *(*wrapper, python, "-I", "-m", "agentctl_child.keepers.spawner"),
                *("--request-fd", str(theirs.fileno()), "--supervisor-pidfd", str(pidfd)),
                *("--supervisor-pid", str(pid), *arguments, "--room", " " * 120),
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(), pidfd),
            env={**os.environ, **(env or {})},
            start_new_session=True,
            **(popen or {}),
        )
        theirs.close()
        os.close(pidfd)
        self.ready = self._hear_ready()
        self.runs: list[LaunchedRun] = []

    def _hear_ready(self) -> SpawnerReady:
        came = select.select([self.requests], [], [], PATIENCE_S)[0]
        data = self.requests.recv(4096) if came else b""
        if not data:
            self.requests.close()
            self.process.kill()
            raise AssertionError(f"the spawner does not get ready: status {self.process.wait()}")
        return msgspec.msgpack.decode(data, type=SpawnerReady)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.requests.close()
        for run in self.runs:
            with contextlib.suppress(OSError):
                run.close()
        self.process.send_signal(signal.SIGCONT)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            if error is None:
                raise

    def launch(
        self,
        *argv: str | bytes,
        env: Mapping[str, str] | None = None,
        containment: Containment = Containment.PID_NAMESPACE,
        sandbox: Sandbox = Sandbox.BASIC,
        stdin: int | None = None,
        cgroup: int | None = None,
        cwd: str = "/",
        target: str = "",
        deadline_s: float | None = None,
        sealed: bool = True,
        host_uid: int | None = None,
        python: str = "",
        view: Sequence[Part] = (),
        network: Network = Network.HOST,
        raw: bytes | None = None,
        begins: bool = True,
    ) -> LaunchedRun:
        """Ask for a run; output and errors go to one pipe.  *begins*: the agent need not wait."""
        run = f"r-test{os.getpid():x}n{next(_numbers):04d}"
        launch = Launch(
            run=run,
            sandbox=sandbox,
            containment=containment,
            argv=tuple(os.fsencode(argument) for argument in argv),
            env={
                os.fsencode(name): os.fsencode(value)
                for name, value in {"PATH": os.defpath, **(env or {})}.items()
            },
            cwd=os.fsencode(cwd),
            target=target,
            deadline_s=deadline_s,
            sealed=sealed,
            host_uid=host_uid,
            python=os.fsencode(python),
            view=tuple(view),
            network=network,
        )
        memfd = os.memfd_create("launch", os.MFD_CLOEXEC)
        os.write(memfd, pack(launch) if raw is None else raw)
        status, wardens = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        begin, our_begin = os.pipe2(os.O_CLOEXEC)
        if begins:
            os.write(our_begin, b"\0")
        channel, agents = channel_pair()
        output, agents_output = os.pipe2(os.O_CLOEXEC)
        null = os.open(os.devnull, os.O_RDONLY)
        given = [
            *(memfd, wardens.fileno(), begin, *agents.descriptors),
            *(null if stdin is None else stdin, agents_output, agents_output),
            *(() if cgroup is None else (cgroup,)),
        ]
        packet = LaunchPacket(run=run, cgroup=cgroup is not None, containment=containment)
        self.requests.sendmsg(
            [pack(packet)],
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", given))],
        )
        wardens.close()
        agents.close()
        for descriptor in (memfd, begin, agents_output, null):
            os.close(descriptor)
        launched = LaunchedRun(run, status, our_begin, channel, output)
        self.runs.append(launched)
        return launched
