"""A disk that is full, slow or broken: one run suffers, and the log still tells the truth."""

import errno
import os
import threading
from pathlib import Path

import msgspec
import pytest
import trio

from agentctl_protocol.channel import agent_end
from agentctl_protocol.messages import (
    Ask,
    Events,
    Hello,
    Ready,
    ResultMessage,
    Start,
    Text,
    Verdict,
)
from agentctl_protocol.records import Output, Stop, VerdictRecord
from agentctl_protocol.report import Actor
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import By, Reason, Result
from agentctl_supervisor import Supervisor
from agentctl_supervisor.errors import LogFullError
from agentctl_supervisor.run.conversation import Conversation
from agentctl_supervisor.run.launch_pipes import ChannelEnds
from agentctl_supervisor.run.live_log import RunLog
from agentctl_supervisor.store.event_log import Appended, LogWriter
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit.channel import channel_pair

FUNCTION = RunSpec(target="module:function")
DISK_FULL = Stop(Result.LIMIT, Reason.DISK, "no room", Actor("limit", "disk"), 0.0, 0.0, kill=True)


@pytest.fixture
def state(tmp_path: Path) -> Home:
    return Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)


class _FullFor(LogWriter):
    """A disk on which the first record that holds *text* finds no room."""

    text = b""

    def append(
        self, body: msgspec.Struct | bytes, by: By = By.SUPERVISOR, count: int = 1
    ) -> Appended:
        if self.text and isinstance(body, bytes) and self.text in body:
            self.text = b""
            raise LogFullError("no room")
        return super().append(body, by, count)


def _log(state: Home, monkeypatch: pytest.MonkeyPatch, full_for: bytes) -> RunLog:
    monkeypatch.setattr(_FullFor, "text", full_for)
    monkeypatch.setattr("agentctl_supervisor.run.live_log.LogWriter", _FullFor)
    log = RunLog(state.create_run(FUNCTION), FUNCTION)

    def stop() -> None:
        log.decide(DISK_FULL)

    log.on_full = stop
    return log


def _nothing(*_: object) -> None: ...


async def test_a_grant_that_finds_no_room_is_not_given(
    state: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The full disk's stop comes first, so the call is refused: no grant follows a stop."""
    log = _log(state, monkeypatch, b"granted")
    ours, theirs = channel_pair()
    conversation = Conversation(
        ChannelEnds(*ours.descriptors), log, Start(run=log.fold.run_id),
        on_ask=_nothing, on_said=_nothing, on_illegal=_nothing,
    )  # fmt: skip
    agent = agent_end()
    with ours, theirs:
        asked = Ask(call="c1", kind="tool", name="shell", args=msgspec.Raw(b"\x80"))
        for message in (Hello(version=1), Ready(), asked):
            theirs.sendall(agent.send(message))
        await conversation.drain()
        heard = [message for message, _ in agent.receive(theirs.recv(1 << 16))]
    verdicts = [message.verdict for message in heard if isinstance(message, Verdict)]
    assert verdicts == ["refused"]
    bodies = [record.body for record in LogReader(state.runs_path / log.fold.run_id)]
    assert DISK_FULL in bodies
    assert [b.verdict for b in bodies if isinstance(b, VerdictRecord)] == ["refused"]
    log.close()


async def test_a_stop_that_finds_no_room_is_one_stop(
    state: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The full disk's stop stands in its place; there are not two records of a stop."""
    log = _log(state, monkeypatch, b"user")
    users = Stop(Result.STOPPED, Reason.USER, "", Actor("uid", "0"), 5.0, 2.0)
    assert not log.decide(users)
    bodies = [record.body for record in LogReader(state.runs_path / log.fold.run_id)]
    assert bodies == [DISK_FULL]
    log.close()


async def test_a_disk_that_fails_ends_the_run_and_not_its_supervisor(
    state: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that cannot be synced stops its run with reason ``disk``; the next one is unharmed."""

    def failing(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with Supervisor.open(state) as supervisor:
        with monkeypatch.context() as broken:
            broken.setattr(os, "fdatasync", failing)
            report = await (await supervisor.start(RunSpec(argv=("sleep", "60")))).wait(
                durable=True
            )
            assert (report.result, report.reason) == (Result.LIMIT, Reason.DISK)
        after = await (await supervisor.start(RunSpec(argv=("true",)))).wait(durable=True)
        assert after.result is Result.SUCCEEDED


async def test_the_end_of_a_run_waits_for_no_disk(
    state: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`wait` returns when the end is written down, though a sync has not come back yet."""
    syncing, go_on, real = threading.Event(), threading.Event(), os.fdatasync

    def slow(fd: int) -> None:
        syncing.set()
        go_on.wait(10)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    async with Supervisor.open(state) as supervisor:
        try:
            run = await supervisor.start(RunSpec(argv=("sleep", "60")))
            await run.wait_started()
            await trio.to_thread.run_sync(syncing.wait)
            with trio.fail_after(5):
                await run.kill()
        finally:
            go_on.set()


async def test_an_event_that_found_no_room_is_not_acknowledged(
    state: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is dropped on a full disk is never called durable; what came before it is."""
    log = _log(state, monkeypatch, b"dropped")
    for first, text in ((1, "kept"), (2, "dropped"), (3, "later")):
        message = Events(first=first, events=[Text(text=text)])
        log.append_from_child(message, msgspec.msgpack.encode(message))
    acknowledged: list[int] = []
    with trio.move_on_after(5) as scope:

        def acknowledge(events: int) -> None:
            acknowledged.append(events)
            scope.cancel()

        await log.keep_durable(acknowledge)
    log.close()
    assert acknowledged == [1]


def test_what_comes_after_the_output_limit_is_counted_and_dropped(state: Home) -> None:
    """A run may write for seconds until it is ended; its log does not grow with that."""
    spec = RunSpec(target="module:function", output_bytes=100)
    log = RunLog(state.create_run(spec), spec)
    for _ in range(5):
        log.append_output(Output(stream="stdout", data=b"x" * 60))
    message = Events(first=1, events=[Text(text="y")])
    log.append_from_child(message, raw := msgspec.msgpack.encode(message))
    value = ResultMessage()
    log.append_from_child(value, msgspec.msgpack.encode(value))
    log.close()
    bodies = [record.body for record in LogReader(state.runs_path / log.fold.run_id)]
    assert [type(body) for body in bodies] == [Output, Output, ResultMessage]
    assert log.dropped_bytes == 3 * 60 + len(raw)
