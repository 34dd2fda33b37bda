"""Who may say what when: both tables, every pair."""

import itertools
from collections.abc import Callable

import msgspec
import pytest

from agentctl_protocol import messages as m
from agentctl_protocol.channel import (
    Channel,
    IllegalInputError,
    agent_end,
    supervisor_end,
    tag_of,
)
from agentctl_protocol.channel_state import (
    AGENT_SAYS,
    SUPERVISOR_SAYS,
    AgentState,
    SupervisorState,
)
from agentctl_protocol.errors import LocalProtocolError, PeerProtocolError
from agentctl_protocol.framing import frame
from agentctl_protocol.values import pack_value

FROM_AGENT: dict[str, m.ChildMessage] = {
    tag_of(message): message
    for message in (
        m.Hello(version=m.PROTOCOL_VERSION),
        m.Ready(),
        m.Events(first=1, events=[m.Text("x")]),
        m.Ask(call="1", kind="tool", name="ls"),
        m.CallFinished(call="1"),
        m.Beat(),
        m.ResultMessage(),
        m.ErrorMessage(kind="E"),
        m.Bye(),
    )
}
FROM_SUPERVISOR: dict[str, m.SupervisorMessage] = {
    tag_of(message): message
    for message in (
        m.Start(run="r"),
        m.Cancel(reason="user", deadline_s=1),
        m.Verdict(call="1", verdict="granted"),
        m.Input(data=pack_value(1)),
        m.InputEnd(),
        m.Ack(seq=1),
        m.Ping(),
    )
}


def bytes_of(message: m.ChildMessage | m.SupervisorMessage) -> bytes:
    """The frame of *message*, whatever the state."""
    return frame(msgspec.msgpack.encode(message))


def test_the_tables_know_every_message_and_no_other() -> None:
    """The words in the tables are those of the message unions."""
    assert {tag for _, tag in AGENT_SAYS} == set(FROM_AGENT)
    assert {tag for _, tag in SUPERVISOR_SAYS} == set(FROM_SUPERVISOR)
    assert {type(message) for message in FROM_AGENT.values()} == set(m.ChildMessage.__args__)
    assert {type(message) for message in FROM_SUPERVISOR.values()} == set(
        m.SupervisorMessage.__args__
    )


def test_every_state_can_be_reached() -> None:
    """Each state but the first is the outcome of some transition."""
    assert {AgentState.SILENT, *AGENT_SAYS.values()} == set(AgentState)
    assert {SupervisorState.OPENING, *SUPERVISOR_SAYS.values()} == set(SupervisorState)


@pytest.mark.parametrize(("state", "tag"), list(itertools.product(AgentState, FROM_AGENT)))
def test_what_an_agent_says_moves_both_ends_or_changes_nothing(state: AgentState, tag: str) -> None:
    """Every pair of state and message: both ends move alike, or both refuse and stay."""
    agent, supervisor = agent_end(), supervisor_end()
    agent.agent_state = supervisor.agent_state = state
    message = FROM_AGENT[tag]
    after = AGENT_SAYS.get((state, tag))

    if after is None:
        with pytest.raises(LocalProtocolError):
            agent.send(message)
        with pytest.raises(PeerProtocolError):
            supervisor.receive(bytes_of(message))
        assert agent.agent_state is supervisor.agent_state is state
        assert supervisor.events_heard == 0
    else:
        [(heard, _)] = supervisor.receive(agent.send(message))
        assert heard == message
        assert agent.agent_state is supervisor.agent_state is after
    assert agent.supervisor_state is supervisor.supervisor_state is SupervisorState.OPENING


@pytest.mark.parametrize(
    ("state", "tag"), list(itertools.product(SupervisorState, FROM_SUPERVISOR))
)
def test_what_a_supervisor_says_moves_both_ends_or_changes_nothing(
    state: SupervisorState, tag: str
) -> None:
    """The same for the other direction."""
    agent, supervisor = agent_end(), supervisor_end()
    agent.supervisor_state = supervisor.supervisor_state = state
    message = FROM_SUPERVISOR[tag]
    after = SUPERVISOR_SAYS.get((state, tag))

    if after is None:
        with pytest.raises(LocalProtocolError):
            supervisor.send(message)
        with pytest.raises(PeerProtocolError):
            agent.receive(bytes_of(message))
        assert agent.supervisor_state is supervisor.supervisor_state is state
    else:
        [(heard, _)] = agent.receive(supervisor.send(message))
        assert tag_of(heard) == tag
        assert agent.supervisor_state is supervisor.supervisor_state is after
    assert agent.agent_state is supervisor.agent_state is AgentState.SILENT


def test_after_bye_nothing_may_be_said() -> None:
    """GONE is an end: no message is legal in it."""
    assert not [tag for state, tag in AGENT_SAYS if state is AgentState.GONE]


def test_after_a_cancel_nothing_more_goes_in() -> None:
    """A cancelled run gets no input; verdicts go on, since an ask must have an answer."""
    assert (SupervisorState.CANCELLING, "input") not in SUPERVISOR_SAYS
    assert (SupervisorState.CANCELLING, "verdict") in SUPERVISOR_SAYS


def test_a_batch_is_sent_whole_or_not_at_all() -> None:
    """One illegal message in a batch leaves the state as it was before the first."""
    agent = agent_end()

    with pytest.raises(LocalProtocolError, match="agent: hello is not allowed when greeted"):
        agent.send(m.Hello(version=1), m.Hello(version=1))

    assert agent.agent_state is AgentState.SILENT


@pytest.mark.parametrize(
    "message",
    [
        m.ErrorMessage(kind="E", text="\udc80"),
        m.ErrorMessage(kind="E", text="x" * (1 << 20)),
        m.ErrorMessage(kind="E", text=object()),  # type: ignore[arg-type]
        m.ResultMessage(value=1 << 70),  # type: ignore[arg-type]
    ],
    ids=["surrogate", "too long", "no text", "number too large"],
)
def test_what_cannot_be_written_changes_nothing(message: m.ChildMessage) -> None:
    """A message that msgpack or the frame limit refuses is our error, and was never said."""
    agent = agent_end()
    agent.send(m.Hello(version=1), m.Ready())

    with pytest.raises(LocalProtocolError):
        agent.send(message)

    assert agent.agent_state is AgentState.ACTIVE


def test_a_frame_without_messages_is_refused_by_both_ends() -> None:
    """There is nothing to say with an empty batch, so nobody may."""
    with pytest.raises(LocalProtocolError):
        agent_end().send()
    with pytest.raises(PeerProtocolError):
        supervisor_end().receive(b"\0\0\0\x01\x90")


def _greeted() -> Channel[m.SupervisorMessage, m.ChildMessage]:
    channel = supervisor_end()
    channel.receive(bytes_of(FROM_AGENT["hello"]) + bytes_of(FROM_AGENT["ready"]))
    return channel


def test_events_are_numbered_without_gaps() -> None:
    """The supervisor counts along: a batch that begins elsewhere is refused."""
    channel = _greeted()
    channel.receive(bytes_of(m.Events(first=1, events=[m.Text("1"), m.Text("2")])))

    with pytest.raises(PeerProtocolError, match="event 4 where 3 was due"):
        channel.receive(bytes_of(m.Events(first=4, events=[m.Text("4")])))

    assert channel.events_heard == 2
    channel.receive(bytes_of(m.Events(first=3, events=[m.Text("3")])))
    assert channel.events_heard == 3


def test_another_version_is_named_with_ours() -> None:
    """A version mismatch says both numbers."""
    with pytest.raises(PeerProtocolError, match=r"version 999.*version 1"):
        supervisor_end().receive(bytes_of(m.Hello(version=999)))


@pytest.mark.parametrize(
    "illegal",
    [
        pytest.param(lambda: b"\xff\xff\xff\xff", id="length"),
        pytest.param(lambda: b"\0\0\0\x01\xc1", id="body"),
        pytest.param(lambda: bytes_of(FROM_AGENT["hello"]), id="state"),
    ],
)
def test_what_came_before_an_illegal_byte_counts(illegal: Callable[[], bytes]) -> None:
    """A result that shares its last packet with garbage is not lost."""
    channel = _greeted()
    result = bytes_of(m.ResultMessage(value=pack_value(42)))

    with pytest.raises(IllegalInputError) as caught:
        channel.receive(result + illegal())

    assert [message for message, _ in caught.value.messages] == [
        m.ResultMessage(value=pack_value(42))
    ]
    assert channel.agent_state is AgentState.ANSWERED
