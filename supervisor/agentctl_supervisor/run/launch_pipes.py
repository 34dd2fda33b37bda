"""The descriptors that join a run to its supervisor, made before the launch.

Ours stay close-on-exec and non-blocking; theirs travel to the spawner and are
closed here right after, so that an end of file means what it says.  A fork of the
embedding program closes them too: it may come between the two.
"""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from agentctl_supervisor.event_loop.byte_streams import PipeWriter
from agentctl_supervisor.run.output import StreamName
from agentctl_supervisor.run.pipe_relay import PipeRelay


class ChannelEnds(NamedTuple):
    """The event loop's ends of a run's channel: what the agent says, and what it is told.

    The agent's ends are pipes and no sockets: what a run attaches to a message on a socket is
    closed where we receive it, and a last close can take seconds.
    """

    reads: int
    writes: int


@dataclass(frozen=True, slots=True)
class Plumbing:
    """Our ends of a run's descriptors; whoever takes one closes it.

    Those for a run's pipes are sockets, and ``relay`` has the pipes.
    """

    status: socket.socket
    begin: int
    channel: ChannelEnds
    stdin: int | None
    stdout: int
    stderr: int | None
    relay: PipeRelay

    def outputs(self) -> list[tuple[StreamName, int]]:
        """The pipes of the run's output; one is called stdout, and holds both."""
        pipes: list[tuple[StreamName, int]] = [("stdout", self.stdout)]
        return pipes if self.stderr is None else [*pipes, ("stderr", self.stderr)]

    def close(self) -> None:
        """Close them all: nobody took one."""
        self.status.close()
        for fd in (self.begin, *self.channel, self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)


@dataclass(frozen=True, slots=True)
class OutputPipes:
    """How a run's output reaches us.

    ``one``: stdout and stderr are one pipe, which keeps their order.  ``capacity``: bytes that a
    pipe is to hold, as far as this user may have them; 0: what the kernel gives.
    """

    one: bool = False
    capacity: int = 0

    def enlarge(self, fd: int) -> None:
        """Give the pipe *fd* its capacity, or as much of it as is to be had: pipe(7)."""
        wanted = self.capacity
        while wanted > fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ):
            try:
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, wanted)
            except OSError:
                # EPERM: more than fs.pipe-max-size, or than this user's share of pipe pages,
                # neither of which binds who has CAP_SYS_RESOURCE.
                wanted //= 2


TWO_PIPES: Final = OutputPipes()


class TheirEnds:
    """The other ends, in the order of `LaunchPacket`: the standard streams come last."""

    def __init__(self, fds: Sequence[int]) -> None:
        self.fds: Final = tuple(fds)
        _not_yet_closed.add(self)

    def __repr__(self) -> str:
        return f"<TheirEnds {self.fds}>"

    def give_streams(self, uid: int) -> None:
        """Let *uid* open its standard streams by name: ``/dev/stdout`` is /proc/self/fd/1.

        An open there asks the pipe's inode (mode 0600), which belongs to its maker, unlike a
        write to the descriptor.  Either end may be opened so: a run can read what it wrote
        itself, and take it from its own report.
        """
        for fd in self.fds[-3:]:
            # The null device is the host's.
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                with contextlib.suppress(OSError):  # root without CAP_CHOWN: it runs all the same
                    os.fchown(fd, uid, -1)

    def close(self) -> None:
        """Close them: the spawner has its own copies now, or never will."""
        _not_yet_closed.discard(self)
        for fd in self.fds:
            os.close(fd)


_not_yet_closed: Final[set[TheirEnds]] = set()


_standard_inputs: Final = weakref.WeakSet[PipeWriter]()


def standard_input(fd: int) -> PipeWriter:
    """The stream that feeds a run; closing it is the run's end of file, whoever forks meanwhile."""
    stream = PipeWriter(fd)
    _standard_inputs.add(stream)
    return stream


def _close_in_child() -> None:
    for theirs in list(_not_yet_closed):
        theirs.close()
    open_inputs = [fd for stream in _standard_inputs if (fd := stream.fileno()) >= 0]
    if open_inputs:
        null = os.open(os.devnull, os.O_WRONLY)
        for fd in open_inputs:
            # The number stays taken: the stream, which is copied too, closes it some day.
            os.dup2(null, fd, inheritable=False)
        os.close(null)


os.register_at_fork(after_in_child=_close_in_child)


def lay(stdin: bool, pipes: OutputPipes = TWO_PIPES) -> tuple[Plumbing, TheirEnds]:
    """New descriptors for one run; *stdin*: an open standard input instead of the null device.

    *pipes*: those for its output.

    Raises:
        OSError: out of descriptors (EMFILE, ENFILE) or threads (EAGAIN); none is left open.
    """
    with contextlib.ExitStack() as undo:

        def close_on_failure(*fds: int) -> None:
            for fd in fds:
                undo.callback(os.close, fd)

        status, their_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undo.callback(status.close)
        close_on_failure(status_fd := their_status.detach())
        their_begin, begin = os.pipe()
        close_on_failure(their_begin, begin)
        relay = PipeRelay()
        undo.callback(relay.close)
        agent_reads, writes = os.pipe()
        close_on_failure(agent_reads, to_agent := relay.write_to(writes))
        reads, agent_writes = os.pipe()
        close_on_failure(agent_writes, from_agent := relay.read_from(reads))
        if stdin:
            their_stdin, our_stdin = os.pipe()
            close_on_failure(their_stdin, to_stdin := relay.write_to(our_stdin))
        else:
            their_stdin, to_stdin = os.open(os.devnull, os.O_RDONLY), None
            close_on_failure(their_stdin)
        stdout, their_stdout = os.pipe()
        pipes.enlarge(stdout)
        close_on_failure(their_stdout, from_stdout := relay.read_from(stdout))
        if pipes.one:
            from_stderr, their_stderr = None, os.dup(their_stdout)
            close_on_failure(their_stderr)
        else:
            stderr, their_stderr = os.pipe()
            pipes.enlarge(stderr)
            close_on_failure(their_stderr, from_stderr := relay.read_from(stderr))
        try:
            relay.start()
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
        undo.pop_all()
    channel = ChannelEnds(from_agent, to_agent)
    theirs = TheirEnds(
        (
            *(status_fd, their_begin, agent_reads, agent_writes),
            *(their_stdin, their_stdout, their_stderr),
        )
    )
    return (
        Plumbing(status, begin, channel, to_stdin, from_stdout, from_stderr, relay),
        theirs,
    )
