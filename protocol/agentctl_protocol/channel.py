"""An end of a channel: it turns bytes into messages and does no I/O.

The same class serves the supervisor (trio), the child (a thread), and the tests, which connect two
ends by an in-memory wire.
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


#: The messages that `Channel` checks beyond the table.
_CHECKED: Final = frozenset({"events", "hello"})

MAX_EVENTS: Final = 1024
"""Events that are heard, and written down, at once; a longer batch is split into several parts."""

#: Bytes of the shortest message: a map of one pair, "type" and a tag of three letters.
_SHORTEST: Final = 10

#: The `tag_of` of each class that was asked for: msgspec makes it anew each time.
_tags: dict[type, str] = {}


class Role(enum.Enum):
    """The two ends of a channel."""

    AGENT = "agent"
    SUPERVISOR = "supervisor"


class Channel(Generic[_Says, _Hears]):
    """An end of a channel, made by `agent_end` or `supervisor_end`.

    An illegal message raises and changes nothing. Neither state table moves, and no byte is
    produced for an illegal message of our own.
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
        #: The messages of the current frame that were not yet asked for, in reverse order.
        self._parts: list[bytes] | list[msgspec.Raw] = []
        #: Parts of a long batch of events, in reverse order.
        self._events: list[Events] = []

    def __repr__(self) -> str:
        return (
            f"<Channel {self.role.value}: agent {self.agent_state},"
            f" supervisor {self.supervisor_state}, {self._frames.pending} bytes pending>"
        )

    @property
    def pending(self) -> int:
        """The number of bytes that were fed and not heard; at the end, those of a torn frame."""
        return self._frames.pending + sum(len(memoryview(part)) for part in self._parts)

    def send(self, *messages: _Says) -> bytes:
        """Return the bytes of one frame that carries *messages* in order.

        Raises:
            LocalProtocolError: a message is not legal now, cannot be written as msgpack, or the
                frame would be too big.
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
            # A lone surrogate in a text, or a number over 64 bits: structs do not check that.
            raise LocalProtocolError(f"cannot be sent: {one_line(error)}") from None

    def receive(self, data: bytes) -> list[tuple[_Hears, bytes]]:
        """Return the messages that *data* completes, each with the raw bytes that carried it.

        Raises:
            IllegalInputError: a byte or message is illegal. Its ``messages`` attribute holds the
                legal messages before it in the same call.
        """
        heard: list[tuple[_Hears, bytes]] = []
        self.feed(data)
        try:
            while (one := self.next_message()) is not None:
                heard.append(one)
        except PeerProtocolError as error:
            raise IllegalInputError(str(error), heard) from None
        return heard

    def feed(self, data: bytes) -> None:
        """Take *data* in; `next_message` returns its messages."""
        self._frames.feed(data)

    def next_message(self) -> tuple[_Hears, bytes] | None:
        """Return the next message with the raw bytes that carried it; None if none is complete.

        The work of one call is bounded by a frame's length, however many messages the frame
        carries. A supervisor hears a long batch of events as several batches of at most
        `MAX_EVENTS`.

        Raises:
            PeerProtocolError: the message is illegal; the bytes that were fed after it are dropped.
        """
        try:
            while True:
                if self._events:
                    return self._next_events()
                if not self._parts:
                    body = self._frames.next_body()
                    if body is None:
                        return None
                    self._parts = _parts_of(body)
                # A copy: values in a message are views, and would keep the whole frame in memory.
                part = bytes(self._parts.pop())
                message = self._decode(part)
                if message is None:
                    continue
                self._advance(self._other, message)
                if isinstance(message, Events) and len(message.events) > MAX_EVENTS:
                    self._hold(message)
                    continue
                return message, part
        except PeerProtocolError:
            self._parts = []
            self._frames.clear()
            raise

    def _hold(self, message: Events) -> None:
        """Split *message* into parts; the first of them is returned next."""
        self._events = [
            Events(first=message.first + at, events=message.events[at : at + MAX_EVENTS])
            for at in range(0, len(message.events), MAX_EVENTS)
        ]
        self._events.reverse()

    def _next_events(self) -> tuple[_Hears, bytes]:
        events: Any = self._events.pop()
        return events, self._encoder.encode(events)

    def _decode(self, part: bytes) -> _Hears | None:
        """Return the message in *part*; None if an agent need not know it.

        A supervisor may be newer than its agent's SDK, and may send messages that the SDK does not
        know.
        """
        try:
            message: _Hears = self._decode_one(part)
        except UNREADABLE as error:
            if self.role is Role.AGENT and _is_unknown(part):
                return None
            raise PeerProtocolError(f"not a legal message: {one_line(error)}") from None
        return message

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


def _parts_of(body: bytes) -> list[bytes] | list[msgspec.Raw]:
    """Return the content of a frame, in reverse order: one message, or each message of a batch.

    Nothing is decoded here. An error in a message is found when that message is read.

    Raises:
        PeerProtocolError: it is not an array of items that could be messages.
    """
    if not _is_batch(body):
        return [body]
    # An array of a million zeros would take long to split, and none of them is a message.
    if _claimed_length(body) > len(body) // _SHORTEST:
        raise PeerProtocolError("not a legal message: a batch of what is too short for any")
    try:
        parts: list[msgspec.Raw] = _split(body)
    except UNREADABLE as error:
        raise PeerProtocolError(f"not a legal message: {one_line(error)}") from None
    parts.reverse()
    return parts


def _claimed_length(body: bytes) -> int:
    if body[0] & 0xF0 == 0x90:
        return body[0] & 0x0F
    return int.from_bytes(body[1:3] if body[0] == 0xDC else body[1:5])


def _is_unknown(part: bytes) -> bool:
    try:
        return _tagged(part).type not in _KNOWN_TAGS
    except UNREADABLE:
        return False


def _is_batch(body: bytes) -> bool:
    """Return True if it begins with a fixarray, array 16 or array 32; no other type begins so."""
    return body[0] & 0xF0 == 0x90 or body[0] in (0xDC, 0xDD)


class _Tagged(msgspec.Struct):
    type: str


_tagged: Final = msgspec.msgpack.Decoder(_Tagged).decode
_split: Final = msgspec.msgpack.Decoder(
    Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1)]
).decode
#: The tags of an agent's messages, too: if a supervisor sends one, that is an error.
_KNOWN_TAGS: Final = frozenset(
    kind.__struct_config__.tag for kind in (*SupervisorMessage.__args__, *ChildMessage.__args__)
)


class IllegalInputError(PeerProtocolError):
    """The error that `Channel.receive` raises; ``messages`` holds the legal messages before it."""

    def __init__(self, text: str, messages: Sequence[tuple[Any, bytes]] = ()) -> None:
        super().__init__(text)
        self.messages = messages


def tag_of(message: object) -> str:
    """Return the ``type`` under which *message*, a tagged struct, is known."""
    kind: Any = type(message)
    tag = _tags.get(kind)
    if tag is None:
        tag = _tags[kind] = kind.__struct_config__.tag
    return tag


def agent_end(max_frame: int = MAX_FRAME) -> Channel[ChildMessage, SupervisorMessage]:
    """Return the end that the agent's process holds."""
    return Channel(Role.AGENT, max_frame)


def supervisor_end(max_frame: int = MAX_FRAME) -> Channel[SupervisorMessage, ChildMessage]:
    """Return the end that the supervisor holds."""
    return Channel(Role.SUPERVISOR, max_frame)
