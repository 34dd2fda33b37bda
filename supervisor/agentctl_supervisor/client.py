"""The `Client`: looks at runs and stops them, from any program and any thread.

It imports no event loop and starts no process.  It asks the supervisor that holds a run.  If that
supervisor is dead, it finishes the supervisor's work (`recovery`).  If the supervisor does not
answer, it acts in the supervisor's place (`stop_without_supervisor`).

A stop by a supervisor that answers is the usual case.  It imports nothing that only the other
cases need, because on a slow machine the imports take most of its time.
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
from agentctl_supervisor.processes import process_tree
from agentctl_supervisor.store.finished_index import Summary
from agentctl_supervisor.store.run_directory import Home, RunDirectory

OnStep: TypeAlias = Callable[[Step], None]

_SILENCE_S: Final = 1.0
"""The seconds without a reply during a stop, after which the supervisor is pinged again."""
_LOOKS: Final = 2
"""The number of times that a silent supervisor must be found asleep before it counts as stuck.

A single check may come just after it has answered."""
_STARVED_S: Final = 5.0
"""The seconds that a runnable supervisor may take for a ping, if the machine has no free CPU."""
_ATTEMPTS: Final = 5
_OTHERS_S: Final = 15.0
"""The seconds that another client may take to finish a dead supervisor's work."""
_REPLY: Final = msgspec.msgpack.Decoder(Reply)


class StopOutcome(msgspec.Struct, frozen=True):
    """The outcome of a stop.

    ``already``: the run was over before.  ``gone``: it is proven that no process of it is alive.
    """

    report: Report
    already: bool = False
    gone: bool = True


class Client:
    """The interface by which commands and other programs look at this user's runs and stop them.

    Thread-safe: its only state is *home*, the state directory (default: that of the environment,
    `Home.open`).
    """

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        self._home = None if home is None else os.fspath(home)

    def __repr__(self) -> str:
        return f"Client({self._home!r})"

    def runs(
        self, *, finished: bool = False, on_damaged: Callable[[AgentctlError], None] | None = None
    ) -> list[Report]:
        """Return reports of the live runs, and of the *finished* ones if wanted; oldest first.

        A run whose supervisor died is finished by this.  The error of a directory that cannot be
        read is given to *on_damaged*, and does not hide the other runs.
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
        """List the live runs, and the *finished* ones if wanted; oldest first.

        Like `runs`, but fast: finished runs are read from an index, and live ones come from their
        supervisors as brief reports (`Report.brief`).
        """
        return listed(self._open_home(), finished=finished, on_damaged=on_damaged)

    def show(self, ref: str) -> Report:
        """Return the report of run *ref*: a name, an id, or the unique beginning of one.

        Raises:
            NoSuchRunError, AmbiguousRunError, DamagedRunError, StateDirectoryError.
        """
        return current_report(self.directory(ref))

    def directory(self, ref: str) -> RunDirectory:
        """Return the directory of run *ref*.

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
        """End run *ref* by the stop ladder, and return when it is over.

        A grace of None is that of the run.  *on_step* is called for each rung as it is taken.
        To stop a finished run is not an error.

        Raises:
            NoSuchRunError, AmbiguousRunError, DamagedRunError, StateDirectoryError.
            SupervisorGoneError: the run could not be ended; the text says why.
        """
        directory = self.directory(ref)
        request = StopRequest(directory.id, grace_s, term_grace_s, _sendable(reason))
        with directory.while_there():
            return _Ending(directory, request, on_step).run()

    def kill(self, ref: str, *, reason: str = "", on_step: OnStep | None = None) -> StopOutcome:
        """Send SIGKILL to all of run *ref*, and return when it is over.  Otherwise like `stop`."""
        directory = self.directory(ref)
        with directory.while_there():
            return _Ending(directory, KillRequest(directory.id, _sendable(reason)), on_step).run()

    def approve(self, ref: str, call: str | int = "", *, up_to: int = 0) -> str:
        """Grant the waiting call *call* of run *ref*; return for people what was done.

        *call* is a number (`WaitingCall.number`), or an id, which the agent chose.  With
        *up_to*, grant all waiting calls whose number is not higher, so none that came later.

        Raises:
            NoSuchRunError, AmbiguousRunError, DamagedRunError, StateDirectoryError.
            NotWaitingError: the call does not wait, or no longer, or the run was stopped first.
            SupervisorStuckError, SupervisorGoneError: no supervisor answers for the run.
        """
        directory = self.directory(ref)
        return _order(directory, _verdict(directory.id, call, up_to))

    def deny(self, ref: str, call: str | int = "", *, up_to: int = 0, reason: str = "") -> str:
        """Refuse call *call* of run *ref*, and tell the agent *reason*.  Otherwise as `approve`."""
        directory = self.directory(ref)
        request = _verdict(directory.id, call, up_to)
        return _order(
            directory, msgspec.structs.replace(request, granted=False, why=_sendable(reason))
        )

    def signal(self, ref: str) -> str:
        """Fire the ``external()`` termination condition of run *ref*.  Otherwise as `approve`."""
        directory = self.directory(ref)
        return _order(directory, SignalRequest(directory.id))

    def _open_home(self) -> Home:
        environ = dict(os.environ)
        if self._home is not None:
            environ["AGENTCTL_HOME"] = self._home
        return Home.open(environ, create=False)


class _Ending:
    """One stop or kill of one run, by its supervisor or in place of it."""

    def __init__(
        self, directory: RunDirectory, request: StopRequest | KillRequest, on_step: OnStep | None
    ) -> None:
        self._directory = directory
        self._request = request
        self._on_step = on_step or (lambda _step: None)

    def run(self) -> StopOutcome:
        """Return when the run is over, or raise an error."""
        detail = ""
        asked = False
        for _ in range(_ATTEMPTS):
            over = self._over(already=not asked)
            if over is not None:
                return over
            created = created_record(self._directory) or self._await_created()
            # A supervisor counts as frozen only after this time, even if it refuses us at once:
            # `live_log` relies on that.
            deadline = time.monotonic() + PING_TIMEOUT_S
            if created is None or not answers(created):
                if created is not None and _dies(created, deadline - time.monotonic()):
                    # Its lock is free now, or another client is finishing its work.
                    if self._directory.wait_and_lock(_OTHERS_S):
                        self._directory.unlock()
                    continue
                known = current_report(self._directory)
                if known.finished:  # another client has ended it in its supervisor's place
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
        """Wait for the record, which follows the lock at once unless the supervisor froze."""
        from agentctl_supervisor.store.log_watch import wait_for

        path = os.fspath(self._directory.path)
        return wait_for(path, lambda: created_record(self._directory), PING_TIMEOUT_S)

    def _over(self, *, already: bool) -> StopOutcome | None:
        """Return the outcome if the run is over; recover a run that no supervisor holds.

        Otherwise return None.
        """
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
                    # The run may have ended since; then the next attempt finds its report.
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
        # If the supervisor has continued, or died, the run's own report may be there now: it
        # takes precedence.
        return self._over(already=False) or StopOutcome(done.report, gone=done.gone)


def _verdict(run_id: str, call: str | int, up_to: int) -> VerdictRequest:
    """Return a request to grant *call*, or all calls *up_to* that number."""
    # No call has the number 0: on the wire 0 means that the id is used.
    if call == 0 or up_to < 0 or (isinstance(call, int) and call < 0):
        raise NotWaitingError(f"no call {call or up_to} waits for approval")
    if isinstance(call, int):
        return VerdictRequest(run_id, "", granted=True, number=call, up_to=up_to)
    return VerdictRequest(run_id, _sendable(call), granted=True, up_to=up_to)


def _order(directory: RunDirectory, request: VerdictRequest | SignalRequest) -> str:
    """Let the supervisor of the run carry out *request*; return its answer."""
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
    """The supervisor cannot, or does not, finish the request.

    ``was_asked``: it may have begun the request; if False, it no longer had such a run.
    """

    def __init__(self, detail: str, *, was_asked: bool = True) -> None:
        super().__init__(detail)
        self.was_asked = was_asked


def _sendable(text: str) -> str:
    """Return *text* in valid UTF-8, because an argument may contain other bytes."""
    return display(text)[:4096]


def answers(created: Created) -> bool:
    """Return True if the supervisor of *created* answers a ping.

    A supervisor that is stopped, or sleeps although a ping waits, has `PING_TIMEOUT_S` to answer.
    One that runs, or waits for a CPU, is slow but not stuck: it has `_STARVED_S`.
    """
    began = time.monotonic()
    asleep = 0
    for reply in converse(created.socket, Ping(), silence_s=PING_TIMEOUT_S / _LOOKS):
        if reply is not None:
            return isinstance(reply, Pong)
        asleep = 0 if process_tree.is_runnable(created.supervisor) else asleep + 1
        if asleep == _LOOKS or time.monotonic() - began >= _STARVED_S:
            return False
    return False


def converse(
    path: str, request: Request, *, silence_s: float = _SILENCE_S
) -> Iterator[Reply | None]:
    """Yield the replies to *request*, and None for each *silence_s* seconds without one.

    *path*: the supervisor's socket, as the run's log names it.

    Ends when the supervisor hangs up, cannot be reached, or sends something that is not a reply.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        # A connect waits, too, if a stuck supervisor's queue of connections is full.
        connection.settimeout(silence_s)
        try:
            connection.connect(to_bytes(path))
            connection.sendall(frame(msgspec.msgpack.encode(request)))
        except TimeoutError:
            yield None
            return
        except (OSError, ValueError):  # ValueError: not a possible path
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
    """Return True if the supervisor of *created* is dead, or dies within *within_s* seconds."""
    if process_tree.is_out_of_sight(created):
        return False  # its lock is held, and its pid belongs to another process here
    if created.boot_id != process_tree.boot_id():
        return True
    pidfd = process_tree.open_pidfd(created.supervisor)
    if pidfd is None:
        return True
    try:
        return process_tree.wait_dead([pidfd], max(within_s, 0.0))
    finally:
        os.close(pidfd)
