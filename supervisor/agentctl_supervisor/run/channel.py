"""The supervisor's end of a run's channel: two descriptors and a `Channel`; it never blocks.

Three rules hold, whatever the agent does with its end:

* A cancel never waits behind another message that we try to send.
* We stop reading from an agent that does not read what we send.
* After the agent's death we read what it sent, and do not wait for a descendant that
  still holds the agent's end open.

If the agent sends many messages at once, a few are handled at a time: see `turns`.
"""

import fcntl
import os
import struct
import termios
from collections.abc import Callable
from typing import Final

import trio

from agentctl_protocol.channel import Channel, supervisor_end
from agentctl_protocol.channel_state import SupervisorState
from agentctl_protocol.errors import LocalProtocolError, PeerProtocolError
from agentctl_protocol.messages import ChildMessage, SupervisorMessage
from agentctl_supervisor.event_loop import readiness
from agentctl_supervisor.event_loop.turns import turns
from agentctl_supervisor.run.launch_pipes import ChannelEnds

_READ_BYTES: Final = 1 << 16
_OUTBOX_BYTES: Final = 1 << 20
"""The number of unsent bytes above which we stop reading from the agent."""
_DRAIN_BYTES: Final = 64 << 20
_DRAIN_S: Final = 10.0
_INT: Final = struct.Struct("i")

Heard = Callable[[ChildMessage, bytes], None]


class ChannelPump:
    """Reads messages and hands them to *heard*; sends without blocking the caller.

    *heard* is called for each message in order, from `run` or `drain`, and must not block.
    *illegal* is called at most once, with the text of the error; nothing is read after it.
    """

    def __init__(self, ends: ChannelEnds, heard: Heard, illegal: Callable[[str], None]) -> None:
        for fd in ends:
            os.set_blocking(fd, False)
        self._reads, self._writes = ends
        self._heard = heard
        self._illegal = illegal
        self._channel: Channel[SupervisorMessage, ChildMessage] = supervisor_end()
        self._outbox = bytearray()
        self._more_to_send = trio.Event()
        self._outbox_emptied = trio.Event()
        self._open = True
        self._is_illegal = self._is_draining = False

    def __repr__(self) -> str:
        state = "open" if self._open else "closed"
        return f"<ChannelPump {state}, {len(self._outbox)} bytes to send, {self._channel!r}>"

    @property
    def torn_bytes(self) -> int:
        """The number of bytes of a last frame that did not arrive completely."""
        return self._channel.pending

    @property
    def is_unanswered(self) -> bool:
        """True if the agent still waits to be told what to do."""
        return self._open and self._channel.supervisor_state is SupervisorState.OPENING

    def send(self, *messages: SupervisorMessage) -> bool:
        """Send *messages* in one frame, now or as soon as the agent reads.

        Return False if the protocol does not allow it now, or the channel has ended.
        """
        if not self._open:
            return False
        try:
            data = self._channel.send(*messages)
        except LocalProtocolError:
            return False
        if not self._outbox:
            data = data[self._send_now(data) :]
        if data and not self._is_draining:
            self._outbox += data
            self._more_to_send.set()
        return True

    def _send_now(self, data: bytes | bytearray) -> int:
        """Write what the pipe takes now; return how many bytes need not be sent any more."""
        try:
            return os.write(self._writes, data)
        except BlockingIOError:
            return 0
        except OSError:  # the agent is dead, so nobody will read them
            return len(data)

    async def wait_outbox_below_limit(self) -> None:
        """Wait until the agent has read enough of what was sent to it, or is gone."""
        while self._open and len(self._outbox) > _OUTBOX_BYTES:
            await self._outbox_emptied.wait()

    async def run(self) -> None:
        """Read and send until the channel ends; cancel it to stop."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._send_outbox)
            await self._read()
            nursery.cancel_scope.cancel()

    async def _read(self) -> None:
        while self._open:
            await readiness.wait_readable(self._reads)
            # Handle every message before the next read: this slows down an agent that floods us.
            if self._read_once() and await self._hear_all():
                await self.wait_outbox_below_limit()

    def _read_once(self) -> bool:
        """Read once; return False if there is nothing to read now, or the channel has ended."""
        try:
            data = os.read(self._reads, _READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # EIO, ENODATA: the agent spliced in a page that can no longer be read
            data = b""
        if not data:
            self._open = False
            return False
        self._channel.feed(data)
        return True

    async def _hear_all(self) -> bool:
        """Hand over what was read, in turns with others; return True if the channel is open."""
        common = turns()
        turn = common.now() if self._is_draining else await common.next()
        while True:
            with turn:
                while turn.goes_on():
                    if not self._hear_one():
                        return self._open
            if len(self._outbox) > _OUTBOX_BYTES:
                await self.wait_outbox_below_limit()
            turn = await common.next()

    def _hear_one(self) -> bool:
        """Hand over one message; return False if there is none.

        After an illegal message there is none.
        """
        if self._is_illegal:
            return False
        try:
            one = self._channel.next_message()
        except PeerProtocolError as error:
            self._is_illegal = True
            self._open = False
            self._illegal(str(error))
            return False
        if one is None:
            return False
        self._heard(*one)
        return True

    async def _send_outbox(self) -> None:
        while True:
            await self._more_to_send.wait()
            self._more_to_send = trio.Event()
            while self._outbox:
                await readiness.wait_writable(self._writes)
                del self._outbox[: self._send_now(self._outbox[:_READ_BYTES])]
                self._notify_emptied()
            self._notify_emptied()

    def _notify_emptied(self) -> None:
        self._outbox_emptied.set()
        self._outbox_emptied = trio.Event()

    async def drain(self) -> int:
        """Read what the agent left in the channel.  Call it after its death, and after `run`.

        Reads up to the end of the channel.  `PipeRelay.finish` causes that end even if a process
        outside the run holds the pipe open.  Stops after 64 MB or ten seconds in any case.

        Returns:
            The number of bytes that were there but were not read.
        """
        self._is_draining = True
        self._outbox.clear()  # no process reads it any more
        budget = _DRAIN_BYTES
        with trio.move_on_after(_DRAIN_S):
            await self._hear_all()
            while self._open and budget > 0:
                if self._read_once():
                    await self._hear_all()
                    budget -= _READ_BYTES
                elif self._open:
                    await readiness.wait_readable(self._reads)
        return self._unread()

    def _unread(self) -> int:
        """Return how many bytes wait to be read, whichever process wrote them."""
        if not self._open:
            return 0
        try:
            (count,) = _INT.unpack(fcntl.ioctl(self._reads, termios.FIONREAD, bytes(_INT.size)))
        except OSError:
            return 0
        return int(count)

    def close(self) -> None:
        """Close our ends.  After that, nothing is read or sent."""
        self._open = False
        if self._reads >= 0:
            os.close(self._reads)
            os.close(self._writes)
            self._reads = self._writes = -1
        self._notify_emptied()
