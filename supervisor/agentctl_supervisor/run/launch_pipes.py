"""The descriptors that connect a run with its supervisor, made before the launch.

Our ends stay close-on-exec and non-blocking.  The run's ends are sent to the spawner and are
closed here right after, so that an end of file really means that the run has closed them.
The embedding program may fork between the two steps, so its forked child closes them too.
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
    """The event loop's ends of a run's channel: one to read from, one to write to.

    The agent's ends are pipes and not sockets.  A run could attach descriptors to a message on
    a socket; we would have to close them on receipt, and the last close of a descriptor can
    take seconds.
    """

    reads: int
    writes: int


@dataclass(frozen=True, slots=True)
class Plumbing:
    """Our ends of a run's descriptors; the code that takes one closes it.

    Our ends of the run's pipes are sockets; ``relay`` owns the pipes themselves.
    """

    status: socket.socket
    begin: int
    channel: ChannelEnds
    stdin: int | None
    stdout: int
    stderr: int | None
    relay: PipeRelay

    def outputs(self) -> list[tuple[StreamName, int]]:
        """Return the run's output streams.  A single one is called stdout and carries both."""
        pipes: list[tuple[StreamName, int]] = [("stdout", self.stdout)]
        return pipes if self.stderr is None else [*pipes, ("stderr", self.stderr)]

    def close(self) -> None:
        """Close them all.  Only for the case that none was taken."""
        self.status.close()
        for fd in (self.begin, *self.channel, self.stdin, self.stdout, self.stderr):
            if fd is not None:
                os.close(fd)


@dataclass(frozen=True, slots=True)
class OutputPipes:
    """The settings of the pipes for a run's output.

    ``one``: stdout and stderr share one pipe, which keeps their order.  ``capacity``: the bytes
    that a pipe should hold, as far as this user is allowed to; 0 means the kernel's default.
    """

    one: bool = False
    capacity: int = 0

    def enlarge(self, fd: int) -> None:
        """Give the pipe *fd* its capacity, or as much of it as the kernel allows: pipe(7)."""
        wanted = self.capacity
        while wanted > fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ):
            try:
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, wanted)
            except OSError:
                # EPERM: more than fs.pipe-max-size, or more than this user's share of pipe
                # pages.  Neither limits a process with CAP_SYS_RESOURCE.
                wanted //= 2


TWO_PIPES: Final = OutputPipes()


class TheirEnds:
    """The run's ends, in the order of `LaunchPacket`: the standard streams come last."""

    def __init__(self, fds: Sequence[int]) -> None:
        self.fds: Final = tuple(fds)
        _not_yet_closed.add(self)

    def __repr__(self) -> str:
        return f"<TheirEnds {self.fds}>"

    def give_streams(self, uid: int) -> None:
        """Let *uid* open its standard streams by name: ``/dev/stdout`` is /proc/self/fd/1.

        Such an open checks the permissions of the pipe's inode, which has mode 0600 and belongs
        to the process that made it.  A write to the descriptor does not check them.  Either end
        may be opened in this way, so a run can read back what it wrote itself, and remove it
        from its own report.
        """
        for fd in self.fds[-3:]:
            # Not the null device, which belongs to the host.
            if stat.S_ISFIFO(os.fstat(fd).st_mode):
                with contextlib.suppress(OSError):  # root without CAP_CHOWN: the run starts anyway
                    os.fchown(fd, uid, -1)

    def close(self) -> None:
        """Close them, once the spawner has its own copies or will never get them."""
        _not_yet_closed.discard(self)
        for fd in self.fds:
            os.close(fd)


_not_yet_closed: Final[set[TheirEnds]] = set()


_standard_inputs: Final = weakref.WeakSet[PipeWriter]()


def standard_input(fd: int) -> PipeWriter:
    """Return the stream for a run's standard input, over *fd*.

    Closing it gives the run an end of file, even if this program has forked meanwhile.
    """
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
            # Keep the number in use: the child has a copy of the stream, which may close it later.
            os.dup2(null, fd, inheritable=False)
        os.close(null)


os.register_at_fork(after_in_child=_close_in_child)


def lay(stdin: bool, pipes: OutputPipes = TWO_PIPES) -> tuple[Plumbing, TheirEnds]:
    """Make the descriptors for one run.

    *stdin*: give the run an open standard input instead of the null device.  *pipes*: the
    settings of its output pipes.

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

        def from_run(settings: OutputPipes = TWO_PIPES) -> tuple[int, int]:
            reads, theirs = os.pipe()
            close_on_failure(theirs)
            settings.enlarge(reads)
            close_on_failure(ours := relay.read_from(reads))
            return ours, theirs

        def to_run() -> tuple[int, int]:
            theirs, writes = os.pipe()
            close_on_failure(theirs)
            close_on_failure(ours := relay.write_to(writes))
            return ours, theirs

        to_agent, agent_reads = to_run()
        from_agent, agent_writes = from_run()
        to_stdin: int | None = None
        if stdin:
            to_stdin, their_stdin = to_run()
        else:
            their_stdin = os.open(os.devnull, os.O_RDONLY)
            close_on_failure(their_stdin)
        from_stdout, their_stdout = from_run(pipes)
        from_stderr: int | None = None
        if pipes.one:
            their_stderr = os.dup(their_stdout)
            close_on_failure(their_stderr)
        else:
            from_stderr, their_stderr = from_run(pipes)
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
