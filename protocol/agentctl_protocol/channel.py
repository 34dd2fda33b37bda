"""One end of a channel: bytes in, messages out, and no I/O anywhere.

The same object serves the supervisor (trio) and the child (a thread), and the
tests, which join two of them by an in-memory wire.
"""

import enum
from collections.abc import Sequence
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from agentctl_protocol.channel_state import (
    AGENT_SAYS,
    SUPERVISOR_SAYS,
    AgentState,
    SupervisorState,
)
from agentctl_protocol.errors import (
    UNREADABLE,
    LocalProtocolError,
    PeerProtocolError,
    one_line,
)
from agentctl_protocol.framing import MAX_FRAME, FrameBuffer, frame
from agentctl_protocol.messages import (
    PROTOCOL_VERSION,
    ChildMessage,
    Events,
    Hello,
    SupervisorMessage,
)

_Says = TypeVar("_Says", bound=ChildMessage | SupervisorMessage)
_Hears = TypeVar("_Hears", bound=ChildMessage | SupervisorMessage)


#: What `Channel` looks at beyond the table.
_CHECKED: Final = frozenset({"events", "hello"})

#: `tag_of` of each class that it was asked for: msgspec makes it anew each time.
_tags: dict[type, str] = {}


class Role(enum.Enum):
    """Which end of the channel this is."""

    AGENT = "agent"
    SUPERVISOR = "supervisor"


class Channel(Generic[_Says, _Hears]):
    """One end of a channel.  `agent_end` and `supervisor_end` make them.

    An illegal message raises and changes nothing: neither state table moves,
    and for one of ours no byte is produced.
    """

    def __init__(self, role: Role, max_frame: int = MAX_FRAME) -> None:
        self.role = role
        self.agent_state = AgentState.SILENT
        self.supervisor_state = SupervisorState.OPENING
        self.events_heard = 0
        self._other = Role.AGENT if role is Role.SUPERVISOR else Role.SUPERVISOR
        self._max_frame = max_frame
        self._frames = FrameBuffer(max_frame)
        self._encoder = msgspec.msgpack.Encoder()
        heard: Any = ChildMessage if role is Role.SUPERVISOR else SupervisorMessage
        self._decode_one = msgspec.msgpack.Decoder(heard).decode
        batch = Annotated[list[heard], msgspec.Meta(min_length=1)]
        self._decode_many = msgspec.msgpack.Decoder(batch).decode

    def __repr__(self) -> str:
        return (
            f"<Channel {self.role.value}: agent {self.agent_state},"
            f" supervisor {self.supervisor_state}, {self._frames.pending} bytes pending>"
        )

    @property
    def pending(self) -> int:
        """Bytes of a frame that has not arrived whole; what is left at the end is torn."""
        return self._frames.pending

    def send(self, *messages: _Says) -> bytes:
        """The bytes of one frame that carries *messages* in order.

        Raises:
            LocalProtocolError: a message is not legal now, cannot be written as
                msgpack, or the frame would be too big.
        """
        state_before = self.agent_state, self.supervisor_state
        try:
            if not messages:
                raise LocalProtocolError("a frame carries at least one message")
            for message in messages:
                self._advance(self.role, message)
            return frame(self._encode(messages), self._max_frame)
        except LocalProtocolError:
            self.agent_state, self.supervisor_state = state_before
            raise

    def _encode(self, messages: Sequence[_Says]) -> bytes:
        try:
            return self._encoder.encode(messages[0] if len(messages) == 1 else messages)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            # A lone surrogate in a text, a number over 64 bits: structs do not check.
            raise LocalProtocolError(f"cannot be sent: {one_line(error)}") from None

    def receive(self, data: bytes) -> list[tuple[_Hears, bytes]]:
        """The messages that *data* completes, each with the raw bytes that carried it.

        The raw bytes are those of the whole frame body when it held one message,
        and a fresh encoding when it was part of a batch.

        Raises:
            PeerProtocolError: a byte or message is illegal.  Messages before it in
                the same call are in its ``messages`` attribute: they were legal.
        """
        heard: list[tuple[_Hears, bytes]] = []
        try:
            for body in self._frames.receive(data):
                for message, raw in self._decode(body):
                    self._advance(self._other, message)
                    heard.append((message, raw))
        except PeerProtocolError as error:
            raise IllegalInputError(str(error), heard) from None
        return heard

    def _decode(self, body: bytes) -> Sequence[tuple[_Hears, bytes]]:
        try:
            if not _is_batch(body):
                return ((self._decode_one(body), body),)
            messages: Sequence[_Hears] = self._decode_many(body)
        except msgspec.ValidationError as error:
            if self.role is Role.AGENT and (known := self._known(body)) is not None:
                return known
            raise PeerProtocolError(f"not a legal message: {one_line(error)}") from None
        except UNREADABLE as error:
            raise PeerProtocolError(f"not a legal message: {one_line(error)}") from None
        return [(message, self._encoder.encode(message)) for message in messages]

    def _known(self, body: bytes) -> list[tuple[_Hears, bytes]] | None:
        """The messages in *body* without those of a kind that we do not know; None: another fault.

        A supervisor may be newer than its agent's SDK, and know more to say.
        """
        try:
            parts = _parts(body) if _is_batch(body) else (body,)
            return [
                (self._decode_one(part), bytes(part))
                for part in parts
                if _tagged(part).type in _KNOWN_TAGS
            ]
        except UNREADABLE:
            return None

    def _advance(self, role: Role, message: ChildMessage | SupervisorMessage) -> None:
        kind = tag_of(message)
        error = LocalProtocolError if role is self.role else PeerProtocolError
        if role is Role.SUPERVISOR:
            after = SUPERVISOR_SAYS.get((self.supervisor_state, kind))
            if after is None:
                raise error(f"supervisor: {kind} is not allowed when {self.supervisor_state}")
            self.supervisor_state = after
            return
        state = AGENT_SAYS.get((self.agent_state, kind))
        if state is None:
            raise error(f"agent: {kind} is not allowed when {self.agent_state}")
        if role is not self.role and kind in _CHECKED:
            self._check_heard(message)
        self.agent_state = state

    def _check_heard(self, message: object) -> None:
        if isinstance(message, Events):
            if message.first != self.events_heard + 1:
                raise PeerProtocolError(
                    f"event {message.first} where {self.events_heard + 1} was due"
                )
            self.events_heard += len(message.events)
        elif isinstance(message, Hello) and message.version != PROTOCOL_VERSION:
            raise PeerProtocolError(
                f"the child speaks protocol version {message.version},"
                f" this supervisor version {PROTOCOL_VERSION}"
            )


def _is_batch(body: bytes) -> bool:
    """Whether it begins with a fixarray, an array 16 or an array 32: no other msgpack type can."""
    return body[0] & 0xF0 == 0x90 or body[0] in (0xDC, 0xDD)


class _Tagged(msgspec.Struct):
    type: str


_tagged: Final = msgspec.msgpack.Decoder(_Tagged).decode
_parts: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
#: An agent's own ones, too: said by a supervisor, they are a fault.
_KNOWN_TAGS: Final = frozenset(
    kind.__struct_config__.tag for kind in (*SupervisorMessage.__args__, *ChildMessage.__args__)
)


class IllegalInputError(PeerProtocolError):
    """What `Channel.receive` raises; ``messages`` holds the legal ones that came before."""

    def __init__(self, text: str, messages: Sequence[tuple[Any, bytes]] = ()) -> None:
        super().__init__(text)
        self.messages = messages


def tag_of(message: object) -> str:
    """The ``type`` under which *message*, a tagged struct, is known."""
    kind: Any = type(message)
    tag = _tags.get(kind)
    if tag is None:
        tag = _tags[kind] = kind.__struct_config__.tag
    return tag


def agent_end(max_frame: int = MAX_FRAME) -> Channel[ChildMessage, SupervisorMessage]:
    """The end that the agent's process holds."""
    return Channel(Role.AGENT, max_frame)


def supervisor_end(max_frame: int = MAX_FRAME) -> Channel[SupervisorMessage, ChildMessage]:
    """The end that the supervisor holds."""
    return Channel(Role.SUPERVISOR, max_frame)
