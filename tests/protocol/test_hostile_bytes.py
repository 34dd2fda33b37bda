"""Bytes that nobody should send: never anything but a named error, and never much memory."""

import resource
import struct
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentctl_protocol import messages as m
from agentctl_protocol import records
from agentctl_protocol.channel import agent_end, supervisor_end
from agentctl_protocol.errors import LocalProtocolError, PeerProtocolError
from agentctl_protocol.framing import MAX_FRAME, frame
from agentctl_protocol.values import MAX_NESTING, open_value, pack_value
from agentctl_protocol.vocabulary import By

HELLO = frame(msgspec.msgpack.encode(m.Hello(version=1)))
READY = frame(msgspec.msgpack.encode(m.Ready()))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
field_names = st.sampled_from(
    [
        "type", "version", "sdk", "first", "events", "call", "kind", "name", "args", "outcome",
        "result", "error", "thread", "loop", "value", "text", "cancelled", "run", "target", "input",
        "paths", "max_frame", "reason", "deadline_s", "verdict", "why", "data", "seq", "state",
    ]
)  # fmt: skip
tags = st.sampled_from(
    [
        *(message.__struct_config__.tag for message in m.ChildMessage.__args__),
        *(message.__struct_config__.tag for message in m.SupervisorMessage.__args__),
        *(message.__struct_config__.tag for message in m.Event.__args__),
    ]
)
almost_messages = st.builds(
    lambda tag, fields: {"type": tag, **fields},
    tags,
    st.dictionaries(field_names, json_values, max_size=5),
)


def hear(data: bytes) -> None:
    """Give *data* to both ends; only the errors that a peer may cause may come out."""
    for channel in (agent_end(), supervisor_end()):
        try:
            channel.receive(data)
        except PeerProtocolError as error:
            assert len(str(error)) < 400
            assert "\n" not in str(error)


@given(st.binary(max_size=200))
def test_random_bytes(data: bytes) -> None:
    """Noise on the wire is a peer's error, or incomplete."""
    hear(data)


@given(st.binary(min_size=1, max_size=200))
def test_random_bodies(body: bytes) -> None:
    """Noise inside a well-formed frame is a peer's error."""
    hear(frame(body))
    hear(HELLO + READY + frame(body))


@given(almost_messages | st.lists(almost_messages, max_size=3) | json_values)
def test_mistyped_messages(thing: Any) -> None:
    """Real tags with fields of wrong names, types and sizes are a peer's error, or legal."""
    hear(HELLO + READY + frame(msgspec.msgpack.encode(thing)))


@given(almost_messages, st.data())
def test_damaged_messages(thing: Any, data: st.DataObject) -> None:
    """One byte changed, dropped or added anywhere is a peer's error, or legal."""
    body = bytearray(msgspec.msgpack.encode(thing))
    place = data.draw(st.integers(0, len(body) - 1))
    body[place : place + data.draw(st.integers(0, 1))] = data.draw(st.binary(max_size=1))
    if body:
        hear(HELLO + READY + frame(bytes(body)))


@given(st.binary(max_size=200), st.sampled_from(By))
def test_random_record_bodies(body: bytes, by: By) -> None:
    """A log reader gets a record, None for an unknown one, or msgspec's own error."""
    try:
        records.decode_body(by, body)
    except msgspec.DecodeError:
        pass


@given(st.binary(max_size=200))
def test_random_values(raw: bytes) -> None:
    """A value field is opened as something that JSON can say, or is a peer's error."""
    try:
        value = open_value(msgspec.Raw(raw))
    except PeerProtocolError as error:
        assert "\n" not in str(error)
    else:
        msgspec.json.encode(value)


@given(json_values)
@settings(max_examples=50)
def test_a_value_arrives_as_it_was_sent(value: Any) -> None:
    """What JSON can say goes through unchanged."""
    assert msgspec.json.encode(open_value(pack_value(value))) == msgspec.json.encode(value)


LYING_LENGTHS = {
    "array": b"\xdd\xff\xff\xff\xff",
    "map": b"\xdf\xff\xff\xff\xff",
    "string": b"\xdb\xff\xff\xff\xff",
    "binary": b"\xc6\xff\xff\xff\xff",
    "ext": b"\xc9\xff\xff\xff\xff\x01",
}


@pytest.mark.parametrize("lie", list(LYING_LENGTHS.values()), ids=list(LYING_LENGTHS))
@pytest.mark.parametrize(
    "around",
    [
        b"%s",
        b"\x81\xa4type%s",
        b"\x82\xa4type\xa6result\xa5value%s",
        b"\x82\xa4type\xa6result\xa7unknown%s",
        b"\x83\xa4type\xa6events\xa5first\x01\xa6events%s",
        b"\x91%s",
    ],
    ids=["bare", "tag", "value", "unknown field", "events", "batch"],
)
def test_a_length_inside_a_body_is_not_believed(lie: bytes, around: bytes) -> None:
    """Five bytes that claim four billion items cost no memory."""
    body = around.replace(b"%s", lie)
    tracemalloc.start()
    try:
        with pytest.raises(PeerProtocolError):
            supervisor_end().receive(HELLO + READY + frame(body))
        with pytest.raises(PeerProtocolError):
            open_value(msgspec.Raw(lie))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("opener", [b"\x91", b"\x81\xa1k"], ids=["arrays", "maps"])
@pytest.mark.parametrize("depth", [2_000, 100_000, 300_000])
@pytest.mark.parametrize("field", [b"value", b"other"], ids=["value", "unknown field"])
def test_deep_nesting_is_a_peers_error(opener: bytes, depth: int, field: bytes) -> None:
    """Containers inside containers exhaust no stack."""
    body = b"\x82\xa4type\xa6result\xa5" + field + opener * depth + b"\xc0"

    with pytest.raises(PeerProtocolError, match="nested too deeply"):
        supervisor_end().receive(HELLO + READY + frame(body))
    with pytest.raises(msgspec.DecodeError):
        records.decode_body(By.CHILD, body)


def test_a_value_nests_as_deep_as_the_limit_and_no_deeper() -> None:
    """What is accepted can be read everywhere, however deep the reader's own stack is."""
    value: Any = None
    for _ in range(MAX_NESTING):
        value = [value]

    assert open_value(pack_value(value)) == value
    with pytest.raises(LocalProtocolError, match="nested too deeply"):
        pack_value([value])
    with pytest.raises(PeerProtocolError, match="nested too deeply"):
        open_value(msgspec.Raw(msgspec.msgpack.encode({"x": value})))


def test_the_most_expensive_frame_costs_bounded_memory() -> None:
    """A megabyte of the smallest events becomes no more than some tens of megabytes."""
    event = msgspec.msgpack.encode(m.Progress())
    count = (MAX_FRAME - 100) // len(event)
    body = (
        b"\x83\xa4type\xa6events\xa5first\x01\xa6events"
        + struct.pack(">BI", 0xDD, count)
        + event * count
    )
    channel = supervisor_end()
    channel.receive(HELLO + READY)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    channel.receive(frame(body))

    assert channel.events_heard == count
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize("value", [object(), {1: object()}, 1 << 70, "\udc80", {(1, 2): 3}])
def test_a_value_that_json_cannot_say_is_our_error(value: object) -> None:
    """An agent that returns such a thing learns so before anything is sent."""
    with pytest.raises(LocalProtocolError, match="not a JSON value"):
        pack_value(value)


def test_a_value_that_contains_itself_is_our_error() -> None:
    """A cycle is found, not followed."""
    cycle: list[object] = []
    cycle.append(cycle)

    with pytest.raises(LocalProtocolError, match="nested too deeply"):
        pack_value(cycle)
