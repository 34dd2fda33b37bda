"""Work on what runs send goes on in turns: a little at a time, and one after the other."""

import itertools
import os
import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest
import trio

from agentctl_protocol.channel import MAX_EVENTS, supervisor_end
from agentctl_protocol.errors import PeerProtocolError
from agentctl_protocol.framing import frame
from agentctl_protocol.messages import (
    Ask,
    Beat,
    ChildMessage,
    Events,
    Hello,
    Ready,
    Text,
)
from agentctl_supervisor.event_loop import turns as module
from agentctl_supervisor.event_loop.turns import MAX_ITEMS, Turns, in_turns, turns
from agentctl_supervisor.run.channel import ChannelPump
from agentctl_supervisor.run.launch_pipes import ChannelEnds

GREETING = (Hello(version=1), Ready())
MANY = 20_000


class Clock:
    """Time that only passes when it is looked at."""

    def __init__(self, step_s: float) -> None:
        self.now = 0.0
        self.step_s = step_s

    def perf_counter(self) -> float:
        self.now += self.step_s
        return self.now


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Each look at the clock, so each item, takes a tenth of a millisecond."""
    clock = Clock(1e-4)
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """No item takes any time."""
    clock = Clock(0.0)
    monkeypatch.setattr(module, "time", clock)
    return clock


class Pumped:
    """A pump whose run has said *messages* in one frame; ``heard`` counts what came through."""

    def __init__(self, *messages: ChildMessage) -> None:
        reads, their_writes = os.pipe()
        their_reads, writes = os.pipe()
        self.theirs, self.heard, self.illegal = (their_reads, their_writes), 0, list[str]()
        self.pump = ChannelPump(ChannelEnds(reads, writes), self._hear, self.illegal.append)
        self.pump._channel.feed(frame(msgspec.msgpack.encode(messages)))

    def _hear(self, _message: ChildMessage, _raw: bytes) -> None:
        self.heard += 1

    def close(self) -> None:
        self.pump.close()
        for fd in self.theirs:
            os.close(fd)


@pytest.fixture
def six() -> Iterator[list[Pumped]]:
    """Six runs, each with one frame of twenty thousand messages."""
    beats = [Beat()] * MANY
    pumped = [Pumped(*GREETING, *beats) for _ in range(6)]
    yield pumped
    for one in pumped:
        one.close()


async def _rounds(pumped: list[Pumped]) -> list[list[int]]:
    """How many messages of each were heard whenever the loop had come round."""
    seen = [[0] * len(pumped)]
    async with trio.open_nursery() as nursery:
        for one in pumped:
            nursery.start_soon(one.pump._hear_all)
        while seen[-1] != [MANY + 2] * len(pumped):
            await trio.lowlevel.checkpoint()
            seen.append([one.heard for one in pumped])
    return seen


@pytest.mark.usefixtures("fast")
async def test_a_turn_is_bounded_in_messages(six: list[Pumped]) -> None:
    """However fast they are, all runs together have four turns between two rounds of the loop."""
    seen = await _rounds(six)
    totals = [sum(heard) for heard in seen]
    assert max(after - before for before, after in itertools.pairwise(totals)) <= 8 * MAX_ITEMS


async def test_a_round_is_bounded_in_time_and_turns_are_fair(
    slow: Clock, six: list[Pumped]
) -> None:
    """Six floods together delay the loop by a few turns, and none is ahead of another by much."""
    began, late = slow.now, list[float]()
    done = trio.Event()

    async def look() -> None:
        nonlocal began
        while not done.is_set():
            await trio.lowlevel.checkpoint()
            late.append(slow.now - began)
            began = slow.now

    spread = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        async with trio.open_nursery() as floods:
            for one in six:
                floods.start_soon(one.pump._hear_all)
            while min(one.heard for one in six) < MANY // 2:
                await trio.lowlevel.checkpoint()
                spread.append(max(o.heard for o in six) - min(o.heard for o in six))
            floods.cancel_scope.cancel()
        done.set()
    # Four turns of half a millisecond, and what each is over by.
    assert max(late) < 0.01
    assert max(spread) < MANY // 10


async def test_what_was_not_heard_in_time_is_heard_at_the_end(slow: Clock) -> None:
    """A run that is cut off in the middle of a frame loses nothing of it."""
    one = Pumped(*GREETING, *[Beat()] * 1000)
    with trio.CancelScope() as scope:
        scope.cancel()
        await one.pump._hear_all()
    assert one.heard < 1000
    await one.pump.drain()
    assert one.heard == 1002
    assert slow.now
    one.close()


async def test_messages_before_an_illegal_one_in_its_frame_are_heard() -> None:
    """A batch is the same as that many frames; what follows the illegal one is nothing."""
    one = Pumped(*GREETING, Beat(), Events(first=7, events=[Text("x")]), Beat())
    assert not await one.pump._hear_all()
    assert (one.heard, one.illegal) == (3, ["event 7 where 1 was due"])
    await one.pump.drain()
    assert (one.heard, len(one.illegal)) == (3, 1)
    one.close()


def test_a_long_batch_of_events_is_heard_in_pieces() -> None:
    """Each is a message of its own, with the numbers that its events had."""
    channel = supervisor_end()
    count = 2 * MAX_EVENTS + 5
    events = Events(first=1, events=[Text(str(n)) for n in range(count)])
    heard = channel.receive(frame(msgspec.msgpack.encode([*GREETING, events, Beat()])))
    pieces = [message for message, _ in heard if isinstance(message, Events)]
    assert [piece.first for piece in pieces] == [1, 1 + MAX_EVENTS, 1 + 2 * MAX_EVENTS]
    assert [event for piece in pieces for event in piece.events] == events.events
    assert [msgspec.msgpack.decode(raw, type=Events) for _, raw in heard[2:-1]] == pieces
    assert isinstance(heard[-1][0], Beat)
    assert channel.events_heard == count


def test_a_batch_of_what_can_be_no_messages_is_not_even_split() -> None:
    """A million zeros in an array would take long, and none is a message."""
    body = b"\xdd" + (1 << 19).to_bytes(4) + bytes(1 << 19)
    with pytest.raises(PeerProtocolError, match="too short for any"):
        supervisor_end().receive(frame(body))


async def test_a_waiting_turn_that_is_cancelled_holds_up_nobody(slow: Clock) -> None:
    """Neither one that waits for the loop to go round, nor one behind it."""
    common = Turns()
    common.used_s = 1.0

    async def take(scope: trio.CancelScope | None) -> None:
        with scope or trio.CancelScope(), await common.next() as turn:
            turn.goes_on()

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            scopes = [trio.CancelScope() for _ in range(6)]
            for scope in scopes:
                nursery.start_soon(take, scope)
            nursery.start_soon(take, None)
            for scope in scopes:
                scope.cancel()
        await take(None)
    assert slow.now


async def test_steps_come_to_their_result_in_turns(slow: Clock) -> None:
    """Others run in between."""
    others = 0

    def steps() -> Iterator[None]:
        for _ in range(1000):
            yield
        return others  # type: ignore[return-value]

    async def other() -> None:
        nonlocal others
        while True:
            await trio.lowlevel.checkpoint()
            others += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        await trio.lowlevel.checkpoint()
        assert await in_turns(steps()) > 10  # type: ignore[arg-type]
        nursery.cancel_scope.cancel()
    assert turns() is turns()
    assert slow.now


def test_values_of_a_message_keep_no_frame_in_memory() -> None:
    """Of frames of a megabyte, small arguments keep only their own messages."""
    channel, kept = supervisor_end(), []
    channel.receive(frame(msgspec.msgpack.encode(GREETING)))
    ask = Ask(call="c", kind="tool", name="n", args=msgspec.Raw(b"\x01"))
    tracemalloc.start()
    try:
        for number in range(1, 33):
            events = Events(first=number, events=[Text("x" * 1_000_000)])
            heard = channel.receive(frame(msgspec.msgpack.encode([ask, events])))
            kept += [message for message, _ in heard if isinstance(message, Ask)]
        now, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == 32
    assert now < 8_000_000
