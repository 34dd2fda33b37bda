"""`Client`: looks at runs and stops them, from any program and any thread.

It imports no event loop and starts no process.  It asks the supervisor that
holds a run; where that one is dead it finishes its work (`recovery`), and where
it does not answer it acts in its place (`stop_without_supervisor`).

A stop by a supervisor that answers is the ordinary one, and imports nothing that
only the others need: on a slow machine that is what it takes longest for.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import msgspec

from agentctl_protocol.control import (
    MAX_CONTROL_FRAME,
    PING_TIMEOUT_S,
    Accepted,
    Done,
    Failed,
    KillRequest,
    Ping,
    Pong,
    Reply,
    Request,
    SignalRequest,
    Step,
    StopRequest,
    VerdictRequest,
)
from agentctl_protocol.errors import UNREADABLE, ProtocolError
from agentctl_protocol.framing import FrameBuffer, frame
from agentctl_protocol.os_names import display, to_bytes
from agentctl_protocol.records import Created
from agentctl_protocol.report import Report
from agentctl_supervisor.errors import (
    AgentctlError,
    NoSuchRunError,
    NotWaitingError,
    SupervisorGoneError,
    SupervisorStuckError,
)
from agentctl_supervisor.observe.list_runs import created_record, current_report, listed
from agentctl_supervisor.store.finished_index import Summary
from agentctl_supervisor.store.run_directory import Home, RunDirectory

OnStep: TypeAlias = Callable[[Step], None]

_SILENCE_S: Final = 1.0
"""Seconds without a word during a stop, after which the supervisor is pinged again."""
_LOOKS: Final = 2
"""Times that a silent supervisor is seen asleep before it is taken for stuck: one look may come
just after it has answered."""
_STARVED_S: Final = 5.0
"""How long a supervisor that is runnable may take for a ping on a machine without a CPU for it."""
_ATTEMPTS: Final = 5
_OTHERS_S: Final = 15.0
"""How long another client may take to finish a dead supervisor's work."""
_REPLY: Final = msgspec.msgpack.Decoder(Reply)


class StopOutcome(msgspec.Struct, frozen=True):
    """What a stop came to.

    ``already``: the run was over before.  ``gone``: proven that no process of it is alive.
    """

    report: Report
    already: bool = False
    gone: bool = True


class Client:
    """The runs of this user, as every command and every other program may see and stop them.

    Thread-safe: it keeps no state but *home*, the state directory (default: that of
    the environment, `Home.open`).
    """

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        self._home = None if home is None else os.fspath(home)

    def __repr__(self) -> str:
        return f"Client({self._home!r})"

    def runs(
        self, *, finished: bool = False, on_damaged: Callable[[AgentctlError], None] | None = None
    ) -> list[Report]:
        """Reports of the live runs, and of the *finished* ones if wanted; oldest first.

        Runs whose supervisor died are finished on the way.  A directory that cannot be
        read is given to *on_damaged* and does not hide the others.
        """
        reports = []
        for directory in self._open_home().runs():
            try:
                report = current_report(directory)
            except NoSuchRunError:
                continue
            except AgentctlError as error:
                if on_damaged is not None:
                    on_damaged(error)
                continue
            if finished or not report.finished:
                reports.append(report)
        return reports

    def listed(
        self, *, finished: bool = False, on_damaged: Callable[[AgentctlError], None] | None = None
    ) -> list[Report | Summary]:
        """What a list shows of the live runs, and of the *finished* ones if wanted; oldest first.

        Like `runs`, but fast: finished runs come out of an index, and live ones from their
        supervisors, whose reports are brief (`Report.brief`).
        """
        return listed(self._open_home(), finished=finished, on_damaged=on_damaged)

    def show(self, ref: str) -> Report:
        """The report of run *ref*, a name, an id, or the unique beginning of one.

        Raises:
            NoSuchRunError, AmbiguousRunError, DamagedRunError, StateDirectoryError.
        """
        return current_report(self.directory(ref))

    def directory(self, ref: str) -> RunDirectory:
        """Where run *ref* is kept.

        Raises:
            NoSuchRunError, AmbiguousRunError, StateDirectoryError.
        """
        return self._open_home().find(ref)

    def stop(
        self,
        ref: str,
        *,
        grace_s: float | None = None,
        term_grace_s: float | None = None,
        reason: str = "",
        on_step: OnStep | None = None,
    ) -> StopOutcome:
        """Ends run *ref* by the ladder and returns when it is over.

        Graces of None are those of the run.  *on_step* hears of each rung as it is taken.
        Stopping a finished run is no error.

        Raises:
            NoSuchRunError, AmbiguousRunError, DamagedRunError, StateDirectoryError.
            SupervisorGoneError: the run could not be ended; the text says why.
        """
        directory = self.directory(ref)
        request = StopRequest(directory.id, grace_s, term_grace_s, _sendable(reason))
        with directory.while_there():
            return _Ending(directory, request, on_step).run()

    def kill(self, ref: str, *, reason: str = "", on_step: OnStep | None = None) -> StopOutcome:
        """SIGKILLs all of run *ref* and returns when it is over.  Else like `stop`."""
        directory = self.directory(ref)
        with directory.while_there():
            return _Ending(directory, KillRequest(directory.id, _sendable(reason)), on_step).run()

    def approve(self, ref: str, call: str | int = "", *, up_to: int = 0) -> str:
        """Grants call *call* of run *ref*, which waits for that; what was done, for people.

        *call* is a number (`WaitingCall.number`), or an id, which the agent chose.  With
        *up_to* all that wait are meant whose number is not higher: none that came later.

        Raises:
            NoSuchRunError, AmbiguousRunError, DamagedRunError, StateDirectoryError.
            NotWaitingError: it does not wait (any more), or the run was stopped first.
            SupervisorStuckError, SupervisorGoneError: nobody answers for the run.
        """
        directory = self.directory(ref)
        return _order(directory, _verdict(directory.id, call, up_to))

    def deny(self, ref: str, call: str | int = "", *, up_to: int = 0, reason: str = "") -> str:
        """Refuses call *call* of run *ref*; the agent is told the reason.  Else like `approve`."""
        directory = self.directory(ref)
        request = _verdict(directory.id, call, up_to)
        return _order(
            directory, msgspec.structs.replace(request, granted=False, why=_sendable(reason))
        )

    def signal(self, ref: str) -> str:
        """Fires the ``external()`` termination condition of run *ref*.  Else like `approve`."""
        directory = self.directory(ref)
        return _order(directory, SignalRequest(directory.id))

    def _open_home(self) -> Home:
        environ = dict(os.environ)
        if self._home is not None:
            environ["AGENTCTL_HOME"] = self._home
        return Home.open(environ, create=False)


class _Ending:
    """One stop or kill of one run, from whoever can do it."""

    def __init__(
        self, directory: RunDirectory, request: StopRequest | KillRequest, on_step: OnStep | None
    ) -> None:
        self._directory = directory
        self._request = request
        self._on_step = on_step or (lambda _step: None)

    def run(self) -> StopOutcome:
        """Returns when the run is over, or raises."""
        detail = ""
        asked = False
        for _ in range(_ATTEMPTS):
            over = self._over(already=not asked)
            if over is not None:
                return over
            created = created_record(self._directory) or self._await_created()
            # Whether it is frozen is known only after that time, also when it refuses us at
            # once: `live_log` relies on it.
            deadline = time.monotonic() + PING_TIMEOUT_S
            if created is None or not answers(created):
                if created is not None and _dies(created, deadline - time.monotonic()):
                    # Its lock is free by now, or another client is finishing its work.
                    if self._directory.wait_and_lock(_OTHERS_S):
                        self._directory.unlock()
                    continue
                known = current_report(self._directory)
                if known.finished:  # somebody else has ended it in its supervisor's place
                    return StopOutcome(known, already=not asked)
                return self._from_outside()
            try:
                return self._ask(created)
            except _SupervisorLeftError as error:
                detail = str(error)
                asked = asked or error.was_asked
        raise SupervisorGoneError(
            f"{self._directory.id}: {detail or 'its supervisor comes and goes'}",
            hint=f"agentctl show {self._directory.id}",
        )

    def _await_created(self) -> Created | None:
        """The record follows the lock at once, unless the supervisor froze in between."""
        from agentctl_supervisor.store.log_watch import wait_for

        path = os.fspath(self._directory.path)
        return wait_for(path, lambda: created_record(self._directory), PING_TIMEOUT_S)

    def _over(self, *, already: bool) -> StopOutcome | None:
        """The outcome, if the run is over or nobody holds it any more."""
        report = self._directory.read_report()
        if report is None and not self._directory.is_held():
            from agentctl_supervisor.recover.recovery import recover

            report = recover(self._directory)
        if report is None:
            return None
        return StopOutcome(
            report, already and report.finished, report.finished and not report.processes.survivors
        )

    def _ask(self, created: Created) -> StopOutcome:
        for reply in converse(created.socket, self._request):
            match reply:
                case Step():
                    self._on_step(reply)
                case Done(report, already):
                    return StopOutcome(report, already, report.processes.survivors == 0)
                case Failed(detail, no_such_run):
                    # It may have ended since: then its report is there on the next look.
                    raise _SupervisorLeftError(detail, was_asked=not no_such_run)
                case None if not answers(created):
                    raise _SupervisorLeftError("its supervisor stopped answering")
                case _:
                    pass
        raise _SupervisorLeftError("its supervisor hung up")

    def _from_outside(self) -> StopOutcome:
        from agentctl_supervisor.stop.stop_without_supervisor import stop_from_outside

        request = self._request
        kill = isinstance(request, KillRequest)
        done = stop_from_outside(
            self._directory,
            kill=kill,
            term_grace_s=None if isinstance(request, KillRequest) else request.term_grace_s,
            reason=request.reason,
            on_step=self._on_step,
        )
        # It may have come back to life, or died, and then its word is the last one.
        return self._over(already=False) or StopOutcome(done.report, gone=done.gone)


def _verdict(run_id: str, call: str | int, up_to: int) -> VerdictRequest:
    """A grant of *call*, or of all *up_to* that number."""
    # 0 is the number of none, and on the wire it would mean that the id counts.
    if call == 0 or up_to < 0 or (isinstance(call, int) and call < 0):
        raise NotWaitingError(f"no call {call or up_to} waits for approval")
    if isinstance(call, int):
        return VerdictRequest(run_id, "", granted=True, number=call, up_to=up_to)
    return VerdictRequest(run_id, _sendable(call), granted=True, up_to=up_to)


def _order(directory: RunDirectory, request: VerdictRequest | SignalRequest) -> str:
    """Have the supervisor of the run carry out *request*; its answer."""
    report = current_report(directory)
    created = created_record(directory)
    if report.finished or created is None:
        raise NotWaitingError(f"{report.name or report.id} is over", "agentctl ps lists what lives")
    for reply in converse(created.socket, request):
        match reply:
            case Accepted(detail=detail):
                return detail
            case Failed(detail=detail):
                raise NotWaitingError(detail, f"agentctl show {report.name or report.id}")
            case None:
                raise SupervisorStuckError(
                    f"the supervisor of {report.name or report.id} does not answer",
                    "agentctl stop works all the same",
                )
            case _:
                break
    raise SupervisorGoneError(f"the supervisor of {report.name or report.id} hung up")


class _SupervisorLeftError(Exception):
    """The supervisor cannot, or does not, finish what it was asked.

    ``was_asked``: it may have begun; else it had no such run any more.
    """

    def __init__(self, detail: str, *, was_asked: bool = True) -> None:
        super().__init__(detail)
        self.was_asked = was_asked


def _sendable(text: str) -> str:
    """*text* as UTF-8 can say it: an argument may hold bytes that are none."""
    return display(text)[:4096]


def answers(created: Created) -> bool:
    """Whether the supervisor of *created* answers a ping.

    One that is stopped, or sleeps although it was asked, has `PING_TIMEOUT_S`.  One that runs,
    or would if it got a CPU, is slow and not stuck: it has `_STARVED_S`.
    """
    from agentctl_supervisor.processes.process_tree import is_runnable

    began = time.monotonic()
    asleep = 0
    for reply in converse(created.socket, Ping(), silence_s=PING_TIMEOUT_S / _LOOKS):
        if reply is not None:
            return isinstance(reply, Pong)
        asleep = 0 if is_runnable(created.supervisor) else asleep + 1
        if asleep == _LOOKS or time.monotonic() - began >= _STARVED_S:
            return False
    return False


def converse(
    path: str, request: Request, *, silence_s: float = _SILENCE_S
) -> Iterator[Reply | None]:
    """The replies to *request*; None for each *silence_s* seconds without one.

    *path*: the supervisor's socket, as its log has it.

    Ends when the supervisor hangs up, cannot be reached or says what is no reply.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        # A connect waits, too, when a stuck supervisor's queue of connections is full.
        connection.settimeout(silence_s)
        try:
            connection.connect(to_bytes(path))
            connection.sendall(frame(msgspec.msgpack.encode(request)))
        except TimeoutError:
            yield None
            return
        except (OSError, ValueError):  # the latter: no path at all
            return
        frames = FrameBuffer(MAX_CONTROL_FRAME)
        while True:
            try:
                data = connection.recv(1 << 16)
                bodies = frames.receive(data)
                replies = [_REPLY.decode(body) for body in bodies]
            except TimeoutError:
                yield None
                continue
            except (OSError, ProtocolError, *UNREADABLE):
                return
            yield from replies
            if not data:
                return


def _dies(created: Created, within_s: float) -> bool:
    """Whether the supervisor of *created* is dead, or is within *within_s* seconds."""
    from agentctl_supervisor.processes import process_tree
    from agentctl_supervisor.processes.process_tree import wait_dead

    if process_tree.is_out_of_sight(created):
        return False  # its lock is held, and a pidfd of its number would be somebody else's
    if created.boot_id != process_tree.boot_id():
        return True
    pidfd = process_tree.open_pidfd(created.supervisor)
    if pidfd is None:
        return True
    try:
        return wait_dead([pidfd], max(within_s, 0.0))
    finally:
        os.close(pidfd)
