"""The supervisor's end of a run's channel: a socket, a `Channel`, and nobody waiting.

Whatever the agent does with its end, three things hold: a cancel is never
stuck behind something else that we wait to send; an agent that does not read
what we send is no longer read from; and what it sent before it died is read
without waiting for a grandchild that holds its end open.
"""

import socket
from collections.abc import Callable
from typing import Final

import trio

from agentctl_protocol.channel import Channel, IllegalInputError, supervisor_end
from agentctl_protocol.channel_state import SupervisorState
from agentctl_protocol.errors import LocalProtocolError, PeerProtocolError
from agentctl_protocol.messages import ChildMessage, SupervisorMessage

_READ_BYTES: Final = 1 << 16
_OUTBOX_BYTES: Final = 1 << 20
"""Unsent bytes over which we stop reading what the agent says."""
_DRAIN_BYTES: Final = 64 << 20

Heard = Callable[[ChildMessage, bytes], None]


class ChannelPump:
    """Reads messages and hands them to *heard*; sends without blocking the caller.

    *heard* is called in order, from `run` or from `drain`, and must not block.
    *illegal* is called once, with the text of the error, and nothing is read after it.
    """

    def __init__(self, sock: socket.socket, heard: Heard, illegal: Callable[[str], None]) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._heard = heard
        self._illegal = illegal
        self._channel: Channel[SupervisorMessage, ChildMessage] = supervisor_end()
        self._outbox = bytearray()
        self._more_to_send = trio.Event()
        self._outbox_emptied = trio.Event()
        self._open = True

    def __repr__(self) -> str:
        state = "open" if self._open else "closed"
        return f"<ChannelPump {state}, {len(self._outbox)} bytes to send, {self._channel!r}>"

    @property
    def torn_bytes(self) -> int:
        """Bytes of a last frame that did not arrive whole."""
        return self._channel.pending

    @property
    def is_unanswered(self) -> bool:
        """Whether the agent waits for what it is to do."""
        return self._open and self._channel.supervisor_state is SupervisorState.OPENING

    def send(self, *messages: SupervisorMessage) -> bool:
        """Send *messages* in one frame, now or as soon as the agent reads.

        False: it is not legal now, or nobody is there to hear it.
        """
        if not self._open:
            return False
        try:
            data = self._channel.send(*messages)
        except LocalProtocolError:
            return False
        if not self._outbox:
            data = data[self._send_now(data) :]
        if data:
            self._outbox += data
            self._more_to_send.set()
        return True

    def _send_now(self, data: bytes | bytearray) -> int:
        """How many bytes of *data* need not be sent any more."""
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError:  # it is dead: nobody will miss them
            return len(data)

    async def wait_outbox_below_limit(self) -> None:
        """Return once the agent has read enough of what was sent to it, or is gone."""
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
            # One piece a turn: a flood from one agent must not hold up another's stop.
            await trio.lowlevel.wait_readable(self._socket)
            self._read_once()
            if self._outbox:
                await self.wait_outbox_below_limit()

    def _read_once(self) -> bool:
        """Whether something was read: False when there is nothing (more), now or ever."""
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # ECONNRESET: it died with unread input; what it said came before
            data = b""
        if not data:
            self._open = False
            return False
        try:
            heard = self._channel.receive(data)
        except PeerProtocolError as error:
            self._open = False
            legal = error.messages if isinstance(error, IllegalInputError) else ()
            for message, raw in legal:
                self._heard(message, raw)
            self._illegal(str(error))
            return False
        for message, raw in heard:
            self._heard(message, raw)
        return True

    async def _send_outbox(self) -> None:
        while True:
            await self._more_to_send.wait()
            self._more_to_send = trio.Event()
            while self._outbox:
                await trio.lowlevel.wait_writable(self._socket)
                del self._outbox[: self._send_now(self._outbox[:_READ_BYTES])]
                self._notify_emptied()
            self._notify_emptied()

    def _notify_emptied(self) -> None:
        self._outbox_emptied.set()
        self._outbox_emptied = trio.Event()

    def drain(self) -> None:
        """Read what the agent left behind, without waiting.  To be called when it is dead.

        It ends with EAGAIN when a process outside the run holds the other end,
        with EOF or ECONNRESET otherwise, and after 64 MB in any case.
        """
        budget = _DRAIN_BYTES
        while self._open and budget > 0 and self._read_once():
            budget -= _READ_BYTES

    def close(self) -> None:
        """Close the socket.  Nothing is read or sent any more."""
        self._open = False
        self._socket.close()
        self._notify_emptied()
