"""The control socket: it lets clients of any version reach this supervisor.

Each connection carries one request.  The socket has mode 0600 in a directory with mode 0700, and
the peer's uid is checked as well: only our own user and root are served.

If a client goes away or does not read, the stop that it asked for goes on all the same.  But a
decision on a call, or a signal, is carried out only while its client is connected: a client that
gave up on a frozen supervisor has told its user that nothing had happened.

An error with one client is reported to that client only.
"""

import contextlib
import errno
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import trio

from agentctl_protocol.control import (
    MAX_CONTROL_FRAME,
    Accepted,
    Done,
    Failed,
    KillRequest,
    Ping,
    Pong,
    Reply,
    Request,
    SignalRequest,
    Statuses,
    StatusRequest,
    StopRequest,
    VerdictRequest,
)
from agentctl_protocol.errors import (
    UNREADABLE,
    LocalProtocolError,
    PeerProtocolError,
    one_line,
)
from agentctl_protocol.framing import FrameBuffer, frame
from agentctl_protocol.records import Waiting
from agentctl_protocol.report import Actor
from agentctl_protocol.vocabulary import Reason
from agentctl_supervisor.control.peer import (
    Peer,
    has_hung_up,
    is_alive_still,
    peer_of,
    take_no_descriptors,
)
from agentctl_supervisor.errors import StateDirectoryError, described
from agentctl_supervisor.event_loop.byte_streams import ControlStream
from agentctl_supervisor.processes.process_tree import ancestors
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.text.users import uid_and_name

_REQUEST_WITHIN_S: Final = 10.0
_MAX_REQUEST: Final = 1 << 16
"""The most bytes of a request: the longest has two texts of 4,096 characters and a name."""
_MAX_ANCESTORS: Final = 256
"""The most ancestors of a client that decides on calls.

No person's shell has more, and each costs us about 20 us."""
_RETRY_ACCEPT_S: Final = 0.1
_MAX_UNHEARD: Final = 256
"""The most connections whose request we wait for at the same time.

Connections that wait for a stop are not counted.  Otherwise that many of them would keep a ping
from being answered, and clients would take us for stuck."""

_decoder: Final[msgspec.msgpack.Decoder[Request]] = msgspec.msgpack.Decoder(Request)


class ControlServer:
    """Answers clients about the runs that *find* finds and *live_runs* lists.

    Raises:
        StateDirectoryError: no socket can be made at *path*.
    """

    def __init__(
        self,
        path: str,
        find: Callable[[str], Run | None],
        live_runs: Callable[[], Sequence[Run]],
    ) -> None:
        self.path: Final = path
        self._find = find
        self._live_runs = live_runs
        self._room = trio.CapacityLimiter(_MAX_UNHEARD)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        old_umask = os.umask(0o177)  # before bind, so that other users can never connect
        try:
            self._listener.bind(path)
        except OSError as error:
            self._listener.close()
            raise StateDirectoryError(f"cannot listen on {path}: {error.strerror}") from None
        finally:
            os.umask(old_umask)
        self._listener.listen(128)
        take_no_descriptors(self._listener)

    def __repr__(self) -> str:
        return f"<ControlServer {self.path}>"

    async def serve(self) -> None:
        """Answer until it is cancelled."""
        listener = trio.socket.from_stdlib_socket(self._listener)
        async with trio.open_nursery() as clients:
            while True:
                try:
                    connection, _ = await listener.accept()
                except OSError as error:
                    if error.errno == errno.EBADF:
                        return  # closed
                    if error.errno != errno.ECONNABORTED:
                        # Out of descriptors, memory or watches: some become free as others end.
                        await trio.sleep(_RETRY_ACCEPT_S)
                    continue
                clients.start_soon(self._answer_client, trio.SocketStream(connection))

    def close(self) -> None:
        """Close the socket and remove its file."""
        self._listener.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    async def _answer_client(self, accepted: trio.SocketStream) -> None:
        stream = ControlStream(accepted.socket)
        try:
            async with stream:
                try:
                    await self._converse(stream)
                except Exception as error:  # noqa: BLE001 - internal; it concerns this client only
                    if not _has_gone(error):
                        await _send(stream, Failed(f"internal error: {described(error)}"))
        except Exception:  # noqa: BLE001, S110 - the client cannot be told; its request goes on
            pass

    async def _converse(self, stream: ControlStream) -> None:
        peer = peer_of(stream.socket)
        if peer.uid not in (0, os.getuid()):
            return
        request: Request | Failed | None = None
        async with self._room:
            with trio.move_on_after(_REQUEST_WITHIN_S):
                request = await _receive(stream)
        match request:
            case None:
                return
            case StopRequest() | KillRequest():
                await self._stop(stream, request, peer.uid)
            case StatusRequest():
                await _send(stream, await self._statuses(request))
            case VerdictRequest() | SignalRequest() if has_hung_up(stream.socket):
                return
            case VerdictRequest() if not self._may_decide(stream.socket, peer):
                await _send(stream, _NOT_FOR_RUNS)
            case _:
                await _send(stream, self._answer(request, peer.uid))

    async def _statuses(self, request: StatusRequest) -> Reply:
        found = self._find(request.run)
        if request.run and found is None:
            return _NO_SUCH_RUN
        runs = list(self._live_runs()) if found is None else [found]
        reports = [await run.current_report(brief=request.brief) for run in runs]
        return Statuses(tuple(reports))

    def _answer(
        self,
        request: Ping | VerdictRequest | SignalRequest | Failed,
        uid: int,
    ) -> Reply:
        match request:
            case Failed():
                return request
            case VerdictRequest():
                return self._decide(request, uid)
            case SignalRequest():
                run = self._find(request.run)
                if run is None:
                    return _NO_SUCH_RUN
                if not run.signal():
                    return Failed("it has no external() condition that waits for a signal")
                return Accepted("signalled")
            case Ping():
                return Pong(pid=os.getpid())

    def _may_decide(self, connection: trio.socket.SocketType, peer: Peer) -> bool:
        """Return True if *peer* is no process of our runs, which reach this socket at level basic.

        All processes of a run are descendants of its warden, whichever of them have died.  The
        search goes up from the peer and not down from the wardens, so its cost does not depend
        on how many processes the runs have.
        """
        above = ancestors(peer.pid, _MAX_ANCESTORS) if peer.pid else None
        wardens = {run.keepers.warden_pid for run in self._live_runs()}
        if above is None or not wardens.isdisjoint(above):
            return False
        # Last: a process that is alive now was also alive while its ancestors were read.
        return is_alive_still(connection)

    def _decide(self, request: VerdictRequest, uid: int) -> Reply:
        run = self._find(request.run)
        if run is None:
            return _NO_SUCH_RUN
        actor = Actor(kind="uid", id=uid_and_name(uid))
        why = None if request.granted else request.why or "refused by a person"
        given = run.decide_calls(partial(_is_meant, request), actor, why=why)
        if not given:
            return Failed(f"no call {request.number or repr(request.call[:80])} waits for approval")
        wanted = "granted" if request.granted else "refused"
        done = [verdict for verdict in given if verdict is not None and verdict.verdict == wanted]
        if not done:
            return Failed(f"it came too late: {given[0].why if given[0] else 'the run ends'}")
        if not request.up_to:
            return Accepted(f"{done[0].name} {wanted}")
        told = f"{len(done)} {'call' if len(done) == 1 else 'calls'} {wanted}"
        late = len(given) - len(done)
        return Accepted(f"{told}; {late} too late, since the run ends" if late else told)

    async def _stop(
        self, stream: ControlStream, request: StopRequest | KillRequest, uid: int
    ) -> None:
        run = self._find(request.run)
        if run is None:
            await _send(stream, _NO_SUCH_RUN)
            return
        if run.finished:
            await _send(stream, Done(run.report, already=True))
            return
        actor = Actor(kind="uid", id=uid_and_name(uid))
        async with trio.open_nursery() as nursery:
            # Listen before the request, because the first steps are taken at once.
            await nursery.start(_tell_steps, run, stream)
            if isinstance(request, KillRequest):
                run.request_stop(reason=Reason.USER, detail=request.reason, actor=actor, kill=True)
            else:
                run.request_stop(
                    reason=Reason.USER,
                    detail=request.reason,
                    actor=actor,
                    grace_s=request.grace_s,
                    term_grace_s=request.term_grace_s,
                )
            report = await run.wait()
        await _send(stream, Done(report))


def _is_meant(request: VerdictRequest, waiting: Waiting) -> bool:
    if request.up_to:
        return waiting.number <= request.up_to
    if request.number:
        return waiting.number == request.number
    return waiting.call == request.call


async def _tell_steps(
    run: Run, stream: ControlStream, *, task_status: trio.TaskStatus[None]
) -> None:
    with run.listen() as steps:
        task_status.started()
        async for step in steps:
            await _send(stream, step)


async def _receive(stream: ControlStream) -> Request | Failed | None:
    """Read the one request of a connection; return None if it closed without one."""
    frames = FrameBuffer(_MAX_REQUEST)
    while True:
        data = await stream.receive_some()
        if not data:
            return None
        try:
            for body in frames.receive(data):
                return _decoder.decode(body)
        except (PeerProtocolError, *UNREADABLE) as error:
            return Failed(f"not a request: {one_line(error)}")


async def _send(stream: ControlStream, reply: Reply) -> None:
    try:
        data = frame(msgspec.msgpack.encode(reply), MAX_CONTROL_FRAME)
    except LocalProtocolError as error:
        match reply:
            case Done(report=report, already=already):
                reply = Done(report.brief(), already)
            case _:
                reply = Failed(f"the answer is too long: {error}")
        data = frame(msgspec.msgpack.encode(reply), MAX_CONTROL_FRAME)
    await stream.send_all(data)


def _has_gone(error: BaseException) -> bool:
    """Return True if the client went away, so that it can be told nothing."""
    if isinstance(error, BaseExceptionGroup):
        return all(_has_gone(one) for one in error.exceptions)
    return isinstance(error, trio.BrokenResourceError)


_NOT_FOR_RUNS: Final = Failed("a run cannot decide on calls: that is for people")
_NO_SUCH_RUN: Final = Failed("no such run here", no_such_run=True)
