"""The `Report`: an object that holds everything that happened in a run.

It is the ``report`` file of a finished run, the answer of `Run.wait`, and the output of ``agentctl
show -o json``. Times are RFC 3339 UTC; durations are seconds.
"""

from datetime import datetime
from signal import SIGKILL
from typing import Any, Literal

import msgspec

from agentctl_protocol.messages import CallKind, UsageQuality
from agentctl_protocol.vocabulary import (
    EXIT_INTERRUPTED,
    EXIT_KILLED,
    EXIT_LIMIT,
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    EXIT_OK,
    EXIT_OWN_FAILURE,
    EXIT_STOPPED,
    Network,
    Reason,
    Result,
    Rung,
    Sandbox,
    State,
)

SCHEMA = 1


class Actor(msgspec.Struct, frozen=True):
    """The party that ended a run.

    ``kind`` is uid, client, terminal, limit, condition or supervisor.
    """

    kind: str
    id: str


class LadderStep(msgspec.Struct, frozen=True):
    """A rung that was used. ``answered``: yes, no, no channel, or asked for a call."""

    step: Rung
    at: datetime
    answered: str = ""


class Processes(msgspec.Struct, frozen=True):
    """Counts of the run's processes.

    ``seen``: alive before the first signal, plus those that joined later. ``killed``: ended by
    SIGKILL. ``survivors``: alive at the end; 0 is proven, not assumed. ``at_least``: there may
    have been more than ``seen`` says. No signal waits for a longer count, and keepers that end a
    run by themselves do not count processes.
    """

    seen: int = 0
    killed: int = 0
    survivors: int = 0
    at_least: bool = False


class Survivor(msgspec.Struct, frozen=True):
    """A process of the run that could not be ended."""

    pid: int
    command: str


class Call(msgspec.Struct, frozen=True):
    """A model or tool call that was granted.

    ``interrupted``: its side effect is unknown. ``open``: it is still going on, in the report of a
    running run. The supervisor makes the ``result`` of an interrupted call, so that a chat history
    stays valid.
    """

    id: str
    kind: CallKind
    name: str
    outcome: Literal["ok", "error", "cancelled", "interrupted", "open"]
    args: Any = None
    result: Any = None
    error: str = ""
    started_at: datetime | None = None
    duration_s: float | None = None


class WaitingCall(msgspec.Struct, frozen=True):
    """A call that waits for a person's verdict, because of the ``rule``.

    ``number`` is the supervisor's number, which people use; ``id`` is the agent's id.
    """

    id: str
    kind: CallKind
    name: str
    rule: str
    args: Any = None
    number: int = 0


class FiredCondition(msgspec.Struct, frozen=True):
    """A termination condition that happened.

    ``condition``: its text form. ``sentence``: what happened, for people. ``at_s``: the time, in
    seconds from the run's start.
    """

    condition: str
    sentence: str
    at_s: float


class UsageTotal(msgspec.Struct, frozen=True):
    """Tokens of one model; ``quality`` is that of the least certain part."""

    prompt_tokens: int
    completion_tokens: int
    quality: UsageQuality


class LogSummary(msgspec.Struct, frozen=True):
    """The content of the run's log. ``torn_bytes``: half written at its end, or half sent."""

    events: int = 0
    bytes: int = 0
    torn_bytes: int = 0
    damaged: tuple[str, ...] = ()


class Limit(msgspec.Struct, frozen=True):
    """A limit in force, in seconds or bytes, and its origin."""

    name: str
    value: float
    origin: str = "spec"


class Workspace(msgspec.Struct, frozen=True):
    """The directory that a run could write to; ``path`` is empty if there was no such bound.

    ``private``: it is a fresh directory for this run alone. All other paths are relative to it, or
    absolute if they lie outside (``--rw``). ``changed``: files and directories whose inode changed
    while the run lived, whichever process changed it; directories have a slash at the end.
    ``changed_left_out``: how many more were seen. ``incomplete``: why not everything was looked
    at, or empty. ``special``: those that are no ordinary files, as ``KIND PATH``; the kind is one
    of symlink, fifo, socket, device, setuid. ``open_at_kill``: open for writing just before
    SIGKILL, so perhaps half written. ``exposed``: names that other programs execute or obey
    (``.git/hooks``) and that the run could make or change.
    """

    path: str = ""
    private: bool = False
    changed: tuple[str, ...] = ()
    changed_left_out: int = 0
    incomplete: str = ""
    special: tuple[str, ...] = ()
    open_at_kill: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The report of a run. A running run has one too, with the known facts and ``result`` null."""

    schema: int = SCHEMA
    id: str
    name: str | None = None
    tags: dict[str, str] = {}
    command: str = ""
    resumes: str | None = None
    state: State
    result: Result | None = None
    reason: Reason | None = None
    detail: str = ""
    actor: Actor | None = None
    conditions: tuple[FiredCondition, ...] = ()
    value: Any = None
    error: str = ""
    exit_code: int | None = None
    signal: int | None = None
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    duration_s: float | None = None
    ladder: tuple[LadderStep, ...] = ()
    processes: Processes = Processes()
    survivor_list: tuple[Survivor, ...] = ()
    waiting: tuple[WaitingCall, ...] = ()
    calls: tuple[Call, ...] = ()
    calls_left_out: int = 0
    usage: dict[str, UsageTotal] = {}
    partial_text: str = ""
    checkpoint: Any = None
    artifacts: tuple[str, ...] = ()
    sandbox: Sandbox = Sandbox.BASIC
    network: Network = Network.HOST
    layers: tuple[str, ...] = ()
    workspace: Workspace = Workspace()
    unseen_variables: tuple[str, ...] = ()
    origins: dict[str, str] = {}
    limits: tuple[Limit, ...] = ()
    output_bytes: int = 0
    dropped_bytes: int = 0
    cpu_s: float | None = None
    log: LogSummary = LogSummary()

    @property
    def finished(self) -> bool:
        """True if the run is over."""
        return self.state is State.FINISHED

    def brief(self) -> "Report":
        """Return the report without the parts that the agent can make long."""
        return msgspec.structs.replace(
            self,
            value=None,
            error="",
            waiting=tuple(msgspec.structs.replace(call, args=None) for call in self.waiting),
            calls=(),
            usage={},
            partial_text="",
            checkpoint=None,
            artifacts=(),
            log=msgspec.structs.replace(self.log, damaged=()),
        )

    @property
    def process_exit_code(self) -> int:
        """The code with which ``agentctl run`` ends for this run."""
        match self.result:
            case Result.SUCCEEDED | Result.TERMINATED:
                return EXIT_OK
            case Result.FAILED:
                if self.signal is not None:
                    return 128 + self.signal
                return self.exit_code or 1
            case Result.STOPPED:
                if self.reason is Reason.USER and self.actor and self.actor.kind == "terminal":
                    return EXIT_INTERRUPTED
                return EXIT_KILLED if self._was_killed else EXIT_STOPPED
            case Result.LIMIT:
                return EXIT_LIMIT
            case Result.REFUSED if self.reason is Reason.NOT_FOUND:
                return EXIT_NOT_FOUND
            case Result.REFUSED if self.reason is Reason.NOT_EXECUTABLE:
                return EXIT_NOT_EXECUTABLE
            case _:
                return EXIT_OWN_FAILURE

    @property
    def _was_killed(self) -> bool:
        if any(step.step is Rung.SIGKILL for step in self.ladder):
            return True
        # Or a client killed it while the supervisor was frozen; the log then has no rung. Neither
        # code nor signal: init was killed, and the agent with it.
        if self.exit_code is None and self.signal is None:
            return self.started_at is not None
        return self.signal == SIGKILL
