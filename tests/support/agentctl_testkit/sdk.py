"""The supervisor's side of one channel, for tests of the SDK: a real agent, no supervisor.

Most agents are forked from one warm interpreter, as agentctl does it; those whose start is
what is tested get an interpreter of their own, with the program text that agentctl uses
for another interpreter.  Whatever they send passes the protocol's own checks, so that an
illegal frame fails every test.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol, Self, TypeVar

from agentctl_child.agent import BOOTSTRAP
from agentctl_protocol.channel import supervisor_end
from agentctl_protocol.messages import (
    Ask,
    Bye,
    Cancel,
    ErrorMessage,
    Events,
    Hello,
    ResultMessage,
    Start,
    SupervisorMessage,
    Text,
    Verdict,
)
from agentctl_protocol.spawning import CHANNEL_FD_VARIABLE, RUN_ID_VARIABLE
from agentctl_protocol.values import open_value, pack_value
from agentctl_testkit.channel import PATIENCE_S, ChannelEnd, channel_pair

AGENTS: Final = Path(__file__).resolve().parents[2] / "agents"
RUN_ID: Final = "r-sdktests"
_RUN_ID_VARIABLE: Final = json.dumps({RUN_ID_VARIABLE: RUN_ID}).encode()

_SERVER: Final = Path(__file__).with_name("forkserver.py")

_M = TypeVar("_M")


class AgentProcess(Protocol):
    """What a test may do with an agent's process; a `subprocess.Popen` is one."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None
    stderr: IO[bytes] | None

    def wait(self, timeout: float) -> int: ...
    def kill(self) -> None: ...
    def terminate(self) -> None: ...


class AgentUnderTest:
    """A live agent and the supervisor's end of its channel."""

    def __init__(self, process: AgentProcess, end: ChannelEnd) -> None:
        self.process = process
        self.end = end
        self.channel = supervisor_end()
        self.heard: list[Any] = []
        self._unread: deque[Any] = deque()

    def begin(
        self,
        target: str,
        *first: SupervisorMessage,
        given: Any = None,
        paths: Sequence[str] = (),
        max_frame: int = 1 << 20,
    ) -> None:
        """Answer its hello with *target*; *first* goes out with the start message."""
        self.hear(Hello)
        start = Start(
            run=RUN_ID,
            target=target,
            input=pack_value(given),
            paths=tuple(paths),
            max_frame=max_frame,
        )
        self.say(start, *first)

    def say(self, *messages: SupervisorMessage) -> None:
        """Send *messages* in one write, a frame each; an agent that is gone hears nothing."""
        with contextlib.suppress(BrokenPipeError):
            self.end.sendall(b"".join(self.channel.send(message) for message in messages))

    def cancel(self, reason: str = "user", detail: str = "enough") -> None:
        self.say(Cancel(reason=reason, deadline_s=5, detail=detail))

    def grant(self, ask: Ask) -> None:
        self.say(Verdict(call=ask.call, verdict="granted"))

    def refuse(self, ask: Ask, why: str = "not today") -> None:
        self.say(Verdict(call=ask.call, verdict="refused", why=why))

    def next_message(self) -> Any:
        """The next message of the agent; None at the end of the channel."""
        while not self._unread:
            if not (data := self.end.recv(1 << 16)):
                return None
            self._unread.extend(message for message, _ in self.channel.receive(data))
        message = self._unread.popleft()
        self.heard.append(message)
        return message

    def hear(self, kind: type[_M]) -> _M:
        """The next message of *kind*; what comes before it is kept in ``heard``."""
        while (message := self.next_message()) is not None:
            if isinstance(message, kind):
                return message
        raise AssertionError(f"no {kind.__name__}, but {self.heard}; {self.stderr()}")

    def hear_text(self, text: str) -> None:
        """Wait until the agent has emitted *text*."""
        while text not in self.texts():
            self.hear(Events)

    def hear_all(self, *, grant: bool = False) -> list[Any]:
        """Everything up to the end of the channel; *grant* says yes to every ask."""
        while (message := self.next_message()) is not None:
            if grant and isinstance(message, Ask):
                self.grant(message)
        return self.heard

    def of(self, kind: type[_M]) -> list[_M]:
        """All messages and events of *kind* heard so far."""
        found = [message for message in self.heard if isinstance(message, kind)]
        return found + [event for event in self.events() if isinstance(event, kind)]

    def events(self) -> list[Any]:
        batches = [message for message in self.heard if isinstance(message, Events)]
        return [event for batch in batches for event in batch.events]

    def texts(self) -> list[str]:
        return [event.text for event in self.events() if isinstance(event, Text)]

    def value(self) -> object:
        """What its function returned."""
        assert self.of(ErrorMessage) == []
        (result,) = self.of(ResultMessage)
        return open_value(result.value)

    def wait(self) -> int:
        """The exit status, after all was heard."""
        return self.process.wait(PATIENCE_S)

    def finish(self, *, grant: bool = False) -> int:
        """Hear all, and wait."""
        self.hear_all(grant=grant)
        return self.wait()

    @property
    def was_cancelled(self) -> bool:
        """Whether its last word was that it ended because it was asked to."""
        return bool(self.heard[-1] == Bye(cancelled=True))

    def stdout(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.read().decode()

    def stderr(self) -> str:
        self.process.kill()
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()[-3000:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.end.close()
        self.process.wait(PATIENCE_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def start_process(argv: Sequence[str]) -> AgentUnderTest:
    """Start *argv* with a channel; says nothing to it."""
    ours, theirs = channel_pair()
    with theirs:
        variables = {
            **os.environ,
            CHANNEL_FD_VARIABLE: theirs.variable,
            RUN_ID_VARIABLE: RUN_ID,
        }
        process = subprocess.Popen(
            argv,
            env=variables,
            pass_fds=theirs.descriptors,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    return AgentUnderTest(process, ours)


def start_target(
    target: str,
    *first: SupervisorMessage,
    given: Any = None,
    paths: Sequence[str] = (),
    max_frame: int = 1 << 20,
) -> AgentUnderTest:
    """Start *target* in a fresh interpreter; *first* goes out with the start message."""
    agent = start_process([sys.executable, "-I", "-c", BOOTSTRAP])
    agent.begin(target, *first, given=given, paths=paths, max_frame=max_frame)
    return agent


def write_agent(folder: Path, source: str, *, library: str = "asyncio") -> Path:
    """A file with *source*, dedented, behind the imports that most agents need."""
    path = folder / "agent_under_test.py"
    path.write_text(
        f"import {library}, os, sys, threading, time\n"
        "from agentctl_child import CallRefused, RunCancelled, run\n" + textwrap.dedent(source)
    )
    return path


class ForkedProcess:
    """An agent's process that is a child of the fork server."""

    def __init__(self, status: socket.socket, streams: Sequence[int]) -> None:
        status.settimeout(PATIENCE_S)
        self._status = status
        pid, (self._pidfd,), _, _ = socket.recv_fds(status, 32, 1)
        self.pid = int(pid)
        self.stdin: IO[bytes] | None = os.fdopen(streams[0], "wb")
        self.stdout: IO[bytes] | None = os.fdopen(streams[1], "rb")
        self.stderr: IO[bytes] | None = os.fdopen(streams[2], "rb")
        self._exit_status: int | None = None

    def wait(self, timeout: float) -> int:
        """The exit status, as `subprocess` gives it."""
        if self._exit_status is None:
            self._status.settimeout(timeout)
            self._exit_status = int(self._status.recv(32))
            self._status.close()
            os.close(self._pidfd)
        return self._exit_status

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        if self._exit_status is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)


class ForkedAgents:
    """Agents forked from a warm interpreter, as agentctl does it; any number at once.

    It imports *preloaded* beforehand, so that no agent spends its start on that.
    """

    def __init__(self, *preloaded: str) -> None:
        ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        self._orders = ours
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-I", _SERVER, str(theirs.fileno()), *preloaded],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )

    def start(
        self,
        target: str,
        *first: SupervisorMessage,
        given: Any = None,
        paths: Sequence[str] = (),
        max_frame: int = 1 << 20,
    ) -> AgentUnderTest:
        """Fork an agent for *target*; *first* goes out with the start message."""
        agent = self.fork()
        agent.begin(target, *first, given=given, paths=paths, max_frame=max_frame)
        return agent

    def fork(self) -> AgentUnderTest:
        """Fork an agent; says nothing to it."""
        (status, its_status), (ours, its_end) = socket.socketpair(), channel_pair()
        (its_in, stdin), (stdout, its_out), (stderr, its_err) = os.pipe(), os.pipe(), os.pipe()
        theirs = [its_status.detach(), *its_end.descriptors, its_in, its_out, its_err]
        try:
            socket.send_fds(self._orders, [_RUN_ID_VARIABLE], theirs)
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        return AgentUnderTest(ForkedProcess(status, (stdin, stdout, stderr)), ours)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._orders.close()
        self._server.wait(PATIENCE_S)


StartAgent = Callable[..., AgentUnderTest]


@contextlib.contextmanager
def agent_starter(
    agents: ForkedAgents, folder: Path, *, library: str = "asyncio"
) -> Iterator[StartAgent]:
    """Gives a function that forks ``main`` of a source text; ends what it started."""
    with contextlib.ExitStack() as stack:

        def start(source: str, *first: SupervisorMessage, **how: Any) -> AgentUnderTest:
            path = write_agent(folder, source, library=library)
            return stack.enter_context(agents.start(f"{path}:main", *first, **how))

        yield start
