"""A channel without a supervisor: its two pipes, each end with the manners of a socket."""

import os
import select
import time
from typing import Final, Self

PATIENCE_S: Final = 20.0


class ChannelEnd:
    """One end of a channel: a pipe to read from, and one to write to.

    ``recv`` and ``sendall`` wait at most 20 seconds, then raise TimeoutError.
    """

    def __init__(self, reads: int, writes: int) -> None:
        self.reads = reads
        self.writes = writes

    def __repr__(self) -> str:
        return f"<ChannelEnd {self.variable}>"

    @property
    def descriptors(self) -> tuple[int, int]:
        """The two, as an agent is given them."""
        return (self.reads, self.writes)

    @property
    def variable(self) -> str:
        """What `AGENTCTL_CHANNEL_FD` says of it."""
        return f"{self.reads},{self.writes}"

    def recv(self, size: int) -> bytes:
        """Up to *size* bytes; none at the end."""
        _wait(self.reads, select.POLLIN)
        return os.read(self.reads, size)

    def sendall(self, data: bytes) -> None:
        """Write *data*; BrokenPipeError when nobody can read it."""
        os.set_blocking(self.writes, False)
        end = time.monotonic() + PATIENCE_S
        while data:
            _wait(self.writes, select.POLLOUT, end)
            data = data[os.write(self.writes, data) :]

    def shut_writing(self) -> None:
        """The other side reads an end of file."""
        if self.writes >= 0:
            os.close(self.writes)
            self.writes = -1

    def close(self) -> None:
        """Close what is open of it."""
        self.shut_writing()
        if self.reads >= 0:
            os.close(self.reads)
            self.reads = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def channel_pair() -> tuple[ChannelEnd, ChannelEnd]:
    """A new channel: the supervisor's end, and the agent's."""
    (agent_reads, writes), (reads, agent_writes) = os.pipe(), os.pipe()
    return ChannelEnd(reads, writes), ChannelEnd(agent_reads, agent_writes)


def _wait(descriptor: int, events: int, end: float | None = None) -> None:
    poll = select.poll()
    poll.register(descriptor, events)
    left = PATIENCE_S if end is None else max(0.0, end - time.monotonic())
    if not poll.poll(left * 1000):
        raise TimeoutError("nobody is at the other end of the channel")
