"""Both ends of the channel, joined by a wire, against a model that does not know the tables.

What each side may say is a regular expression over the first letters of its messages.  The
wire delivers in pieces of any size, in both directions, whenever it likes.
"""

import re
from typing import Final

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agentctl_protocol import messages as m
from agentctl_protocol.channel import IllegalInputError, agent_end, supervisor_end, tag_of
from agentctl_protocol.errors import LocalProtocolError, PeerProtocolError
from agentctl_protocol.framing import HEADER, frame
from agentctl_protocol.values import pack_value

_AGENT: Final = {
    "hello": "h",
    "ready": "r",
    "events": "v",
    "ask": "a",
    "call_finished": "f",
    "beat": "t",
    "result": "R",
    "error": "E",
    "bye": "b",
}
#: hello, then reports; once loaded, ready and reports; an answer, and reports; bye.
_AGENT_MAY: Final = re.compile(r"(h[vaft]*(E[vaft]*|r[vaft]*([RE][vaft]*)?)?b?)?")

_SUPERVISOR: Final = {
    "start": "s",
    "verdict": "v",
    "input": "i",
    "input_end": "e",
    "cancel": "c",
    "ack": "a",
    "ping": "p",
}
#: start, then anything; no input behind its end; nothing but answers behind a cancel.
_SUPERVISOR_MAY: Final = re.compile(r"p*(s[viap]*(e[vap]*)?(c[cvap]*)?)?")

_GARBAGE: Final = (
    HEADER.pack(0),
    HEADER.pack(0xFFFFFFFF),
    frame(b"\xc1"),
    frame(msgspec.msgpack.encode({"type": "hello", "version": "one"})),
    frame(msgspec.msgpack.encode({"type": "start", "run": 1})),
)
#: An agent passes over it: its supervisor may be newer.
_UNKNOWN: Final = frame(msgspec.msgpack.encode({"type": "no such message"}))


class OneWay:
    """One direction: what was said, what is on its way, and what was heard."""

    def __init__(self, letters: dict[str, str], may: re.Pattern[str]) -> None:
        self.letters = letters
        self.may = may
        self.said: list[object] = []
        self.heard: list[object] = []
        self.on_its_way = b""

    def allows(self, messages: list[object]) -> bool:
        """Whether *messages* may follow what was said."""
        word = "".join(self.letters[tag_of(message)] for message in [*self.said, *messages])
        return bool(messages) and self.may.fullmatch(word) is not None

    def take(self, count: int) -> bytes:
        """The next *count* bytes that arrive."""
        arriving, self.on_its_way = self.on_its_way[:count], self.on_its_way[count:]
        return arriving


def _from_agent(tag: str, event: int) -> m.ChildMessage:
    message: dict[str, m.ChildMessage] = {
        "hello": m.Hello(version=m.PROTOCOL_VERSION),
        "ready": m.Ready(),
        "events": m.Events(first=event, events=[m.Text("x"), m.Progress(done=1)]),
        "ask": m.Ask(call="1", kind="tool", name="ls"),
        "call_finished": m.CallFinished(call="1"),
        "beat": m.Beat(thread=1),
        "result": m.ResultMessage(value=pack_value(1)),
        "error": m.ErrorMessage(kind="E"),
        "bye": m.Bye(),
    }
    return message[tag]


_FROM_SUPERVISOR: Final[dict[str, m.SupervisorMessage]] = {
    "start": m.Start(run="r-aaaaaaaa"),
    "verdict": m.Verdict(call="1", verdict="refused", why="no"),
    "input": m.Input(data=pack_value([1])),
    "input_end": m.InputEnd(),
    "cancel": m.Cancel(reason="user", deadline_s=5),
    "ack": m.Ack(seq=1),
    "ping": m.Ping(),
}


# By name: hypothesis looks for a lambda's source every time that it mentions one.
def _has_said_a_little(ends: "TwoEnds") -> bool:
    return not ends.broken and len(ends.up.said) >= 4


def _has_heard_all(ends: "TwoEnds") -> bool:
    return not ends.down.on_its_way and not ends.agent.pending


class TwoEnds(RuleBasedStateMachine):
    """An agent and a supervisor talk, well and badly; a hostile agent sends what it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.agent = agent_end()
        self.supervisor = supervisor_end()
        self.up = OneWay(_AGENT, _AGENT_MAY)
        self.down = OneWay(_SUPERVISOR, _SUPERVISOR_MAY)
        self.events = 0
        self.broken = False

    def agent_messages(self, tags: list[str]) -> list[m.ChildMessage]:
        """Messages with these tags; events are numbered on from the last ones."""
        messages, event = [], self.events + 1
        for tag in tags:
            messages.append(_from_agent(tag, event))
            event += 2 * (tag == "events")
        return messages

    @rule(data=st.data())
    def agent_goes_on(self, data: st.DataObject) -> None:
        """Something legal, and no goodbye before it has said a little."""
        legal = [tag for tag in _AGENT if self.up.allows(list(self.agent_messages([tag])))]
        if len(self.up.said) < 6 and "bye" in legal:
            legal.remove("bye")
        if legal:
            self.say_from_agent([data.draw(st.sampled_from(legal))])

    @rule(tags=st.lists(st.sampled_from(list(_AGENT)), max_size=4))
    def agent_says_anything(self, tags: list[str]) -> None:
        if "bye" not in tags or len(self.up.said) >= 6:
            self.say_from_agent(tags)

    def say_from_agent(self, tags: list[str]) -> None:
        """Send them as one frame, or be refused as the model says."""
        messages = self.agent_messages(tags)
        before = self.agent.agent_state
        if self.up.allows(list(messages)):
            self.up.on_its_way += self.agent.send(*messages)
            self.up.said += messages
            self.events += 2 * tags.count("events")
            return
        try:
            self.agent.send(*messages)
        except LocalProtocolError:
            assert self.agent.agent_state is before
        else:
            raise AssertionError(f"{tags} after {self.up.said}")

    @rule(data=st.data())
    def supervisor_goes_on(self, data: st.DataObject) -> None:
        """Something legal."""
        legal = [tag for tag, said in _FROM_SUPERVISOR.items() if self.down.allows([said])]
        self.say_from_supervisor([data.draw(st.sampled_from(legal))])

    @rule(tags=st.lists(st.sampled_from(list(_SUPERVISOR)), max_size=4))
    def supervisor_says_anything(self, tags: list[str]) -> None:
        self.say_from_supervisor(tags)

    def say_from_supervisor(self, tags: list[str]) -> None:
        """Send them as one frame, or be refused as the model says."""
        messages = [_FROM_SUPERVISOR[tag] for tag in tags]
        before = self.supervisor.supervisor_state
        if self.down.allows(list(messages)):
            self.down.on_its_way += self.supervisor.send(*messages)
            self.down.said += messages
            return
        try:
            self.supervisor.send(*messages)
        except LocalProtocolError:
            assert self.supervisor.supervisor_state is before
        else:
            raise AssertionError(f"{tags} after {self.down.said}")

    @rule(count=st.integers(1, 200))
    def bytes_go_up(self, count: int) -> None:
        if not self.broken:
            arriving = self.up.take(count)
            self.up.heard += [message for message, _ in self.supervisor.receive(arriving)]

    @rule(count=st.integers(1, 200))
    def bytes_go_down(self, count: int) -> None:
        arriving = self.down.take(count)
        self.down.heard += [message for message, _ in self.agent.receive(arriving)]

    @precondition(_has_said_a_little)
    @rule(garbage=st.sampled_from((*_GARBAGE, _UNKNOWN)) | st.sampled_from(list(_AGENT)))
    def agent_breaks_the_rules(self, garbage: bytes | str) -> None:
        """What was said before it is heard, it is not, and nothing after it."""
        if isinstance(garbage, str):
            [message] = self.agent_messages([garbage])
            if garbage == "events":
                message = m.Events(first=self.events + 2, events=[m.Text("a gap")])
            elif self.up.allows([message]):
                return
            garbage = frame(msgspec.msgpack.encode(message))
        try:
            self.supervisor.receive(self.up.take(len(self.up.on_its_way)) + garbage)
        except IllegalInputError as error:
            self.up.heard += [message for message, _ in error.messages]
            self.broken = True
        else:
            raise AssertionError(f"{garbage!r} after {self.up.said}")

    @precondition(_has_heard_all)
    @rule(garbage=st.sampled_from(_GARBAGE))
    def an_agent_hears_garbage(self, garbage: bytes) -> None:
        """It changes nothing; an agent then leaves, so the test is over for this end."""
        before = repr(self.agent)
        other = agent_end()
        other.agent_state = self.agent.agent_state
        other.supervisor_state = self.agent.supervisor_state
        try:
            other.receive(garbage)
        except PeerProtocolError:
            assert repr(other) == before
        else:
            raise AssertionError(f"{garbage!r} was heard")

    @invariant()
    def what_is_heard_is_what_was_said(self) -> None:
        for way in (self.up, self.down):
            assert way.heard == way.said[: len(way.heard)]

    @invariant()
    def ends_agree_when_nothing_is_on_its_way(self) -> None:
        if not self.up.on_its_way:
            assert self.up.heard == self.up.said
            assert self.supervisor.agent_state is self.agent.agent_state
            assert self.supervisor.events_heard == self.events
            assert self.supervisor.pending == 0
        if not self.down.on_its_way:
            assert self.down.heard == self.down.said
            assert self.agent.supervisor_state is self.supervisor.supervisor_state
            assert self.agent.pending == 0


def test_two_ends_never_disagree_and_refuse_what_may_not_be_said() -> None:
    """Whatever they say, in whatever pieces it arrives, and whatever garbage comes with it."""
    run_state_machine_as_test(TwoEnds, settings=settings(max_examples=60, stateful_step_count=30))
