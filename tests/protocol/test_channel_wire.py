"""Two real ends joined by a wire in memory, and every way of cutting what goes over it."""

import random

import msgspec
import pytest

from agentctl_protocol import messages as m
from agentctl_protocol.channel import IllegalInputError, agent_end, supervisor_end
from agentctl_protocol.errors import LocalProtocolError, PeerProtocolError
from agentctl_protocol.framing import FrameBuffer, frame
from agentctl_protocol.values import open_value, pack_value


class Wire:
    """An agent's end and a supervisor's end, and the bytes between them."""

    def __init__(self) -> None:
        self.agent = agent_end()
        self.supervisor = supervisor_end()

    def agent_says(self, *messages: m.ChildMessage) -> list[m.ChildMessage]:
        """Send from the agent; what the supervisor heard."""
        data = self.agent.send(*messages)
        return [message for message, _ in self.supervisor.receive(data)]

    def supervisor_says(self, *messages: m.SupervisorMessage) -> list[m.SupervisorMessage]:
        """Send from the supervisor; what the agent heard."""
        data = self.supervisor.send(*messages)
        return [message for message, _ in self.agent.receive(data)]


@pytest.mark.parametrize("batched", [False, True])
def test_an_agent_passes_over_what_a_newer_supervisor_says(batched: bool) -> None:
    """An unknown kind of message is left out, the others around it are heard."""
    wire = Wire()
    wire.agent_says(m.Hello(version=1))
    wire.supervisor_says(m.Start(run="r-aaaaaaaa"))
    news = {"type": "weather", "sky": ["blue"]}
    body = msgspec.msgpack.encode([news, m.Ping()] if batched else news)
    heard = [message for message, _ in wire.agent.receive(frame(body))]
    assert heard == ([m.Ping()] if batched else [])


@pytest.mark.parametrize(
    "body",
    [{"type": "verdict", "call": 7}, {"type": 7}, {"sky": "blue"}, [{"type": "verdict"}], 7],
)
def test_an_agent_does_not_pass_over_a_broken_message(body: object) -> None:
    """Only what names a kind that is not known."""
    wire = Wire()
    wire.agent_says(m.Hello(version=1))
    with pytest.raises(PeerProtocolError):
        wire.agent.receive(frame(msgspec.msgpack.encode(body)))


def test_a_whole_conversation() -> None:
    """Hello to bye, with a call, input, a cancel: each message arrives as it was sent."""
    wire = Wire()

    assert wire.agent_says(m.Hello(version=1, sdk="test")) == [m.Hello(version=1, sdk="test")]
    [start] = wire.supervisor_says(m.Start(run="r-aaaaaaaa", input=pack_value({"n": 1})))
    assert isinstance(start, m.Start)
    assert open_value(start.input) == {"n": 1}
    wire.agent_says(m.Ready(), m.Events(first=1, events=[m.Text("a"), m.Progress(done=1)]))
    assert wire.supervisor.events_heard == 2
    wire.agent_says(m.Ask(call="1", kind="model", name="gpt", args=pack_value([1])))
    assert wire.supervisor_says(m.Verdict(call="1", verdict="granted"), m.Ack(seq=2)) == [
        m.Verdict(call="1", verdict="granted"),
        m.Ack(seq=2),
    ]
    wire.agent_says(m.CallFinished(call="1", result=pack_value("ok")))
    [item] = wire.supervisor_says(m.Input(data=pack_value("more")))
    assert isinstance(item, m.Input)
    assert open_value(item.data) == "more"
    wire.supervisor_says(m.InputEnd(), m.Cancel(reason="user", deadline_s=5))
    with pytest.raises(LocalProtocolError):
        wire.supervisor_says(m.Input(data=pack_value("too late")))
    assert wire.agent_says(m.ResultMessage(value=pack_value(7)), m.Bye(cancelled=True)) == [
        m.ResultMessage(value=pack_value(7)),
        m.Bye(cancelled=True),
    ]
    assert wire.agent.pending == wire.supervisor.pending == 0


def _conversation() -> bytes:
    agent = agent_end()
    return b"".join(
        (
            agent.send(m.Hello(version=1)),
            agent.send(m.Ready(), m.Events(first=1, events=[m.Text("a" * 70)])),
            agent.send(m.Events(first=2, events=[m.LogLine("b"), m.Text("c")])),
            agent.send(m.ResultMessage(value=pack_value(list(range(50))))),
            agent.send(m.Bye()),
        )
    )


def test_chunk_boundaries_do_not_matter() -> None:
    """Cut in two at every place, cut into single bytes, or whole: the same messages."""
    data = _conversation()
    whole = supervisor_end().receive(data)
    assert len(whole) == 6

    for cut in range(len(data) + 1):
        channel = supervisor_end()
        assert channel.receive(data[:cut]) + channel.receive(data[cut:]) == whole

    channel = supervisor_end()
    assert [pair for byte in data for pair in channel.receive(bytes([byte]))] == whole


def test_chunk_boundaries_do_not_matter_to_an_illegal_end() -> None:
    """However the bytes before an illegal length are cut, the messages in them are heard."""
    good = _conversation()
    data = good + b"\xff\xff\xff\xff"
    whole = supervisor_end().receive(good)

    for cut in range(len(data) + 1):
        channel = supervisor_end()
        heard = []
        error = None
        for piece in (data[:cut], data[cut:]):
            try:
                heard += channel.receive(piece)
            except IllegalInputError as caught:
                heard += caught.messages
                error = error or caught
        assert heard == whole
        assert str(error) == "a frame of 4294967295 bytes: the limit is 1048576"


def test_every_truncation_is_just_incomplete() -> None:
    """Half a frame is no error, only pending; what is left at the end is counted as torn."""
    data = _conversation()

    for length in range(len(data)):
        channel = supervisor_end()
        channel.receive(data[:length])
        assert channel.pending == _length_of_last_part(data[:length])


def _length_of_last_part(data: bytes) -> int:
    while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4]):
        data = data[4 + int.from_bytes(data[:4]) :]
    return len(data)


def test_a_length_is_refused_before_its_body_arrives() -> None:
    """Four bytes are enough to refuse, so that nothing is ever kept for a lie."""
    buffer = FrameBuffer(max_frame=10)

    with pytest.raises(PeerProtocolError, match="a frame of 11 bytes: the limit is 10"):
        list(buffer.receive(b"\0\0\0\x0b"))


def test_nothing_is_kept_after_a_broken_length() -> None:
    """A peer that goes on after an illegal length gets the same error and no memory."""
    buffer = FrameBuffer()
    for _ in range(3):
        with pytest.raises(PeerProtocolError):
            list(buffer.receive(b"\0\0\0\0" + b"x" * 100_000))
        assert buffer.pending == 0


def test_the_buffer_holds_at_most_one_frame() -> None:
    """Whatever the cuts, what is pending is less than one frame and its header."""
    chance = random.Random(4)
    data = b"".join(frame(bytes(chance.randrange(1, 300)), 300) for _ in range(200))
    buffer = FrameBuffer(max_frame=300)
    bodies = 0

    while data:
        length = chance.randrange(1, 900)
        bodies += sum(1 for _ in buffer.receive(data[:length]))
        data = data[length:]
        assert buffer.pending < 304

    assert bodies == 200


def test_a_frame_may_be_exactly_as_long_as_the_limit() -> None:
    """The limit is inclusive on both sides, and one byte more is refused on both."""
    assert list(FrameBuffer(max_frame=5).receive(frame(b"12345", 5))) == [b"12345"]
    for body in (b"", b"123456"):
        with pytest.raises(LocalProtocolError):
            frame(body, 5)
