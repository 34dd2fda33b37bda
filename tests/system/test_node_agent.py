"""An agent in another language, written from ``docs/protocol.md``: `examples/node_agent.mjs`.

Its runs go through a real supervisor; what no supervisor of ours would say, in no order of
ours, comes from a test that holds the other end of its channel.
"""

import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import trio

from agentctl_protocol.channel import Channel, supervisor_end
from agentctl_protocol.framing import frame
from agentctl_protocol.messages import (
    Ask,
    Beat,
    Bye,
    CallFinished,
    Checkpoint,
    ChildMessage,
    ErrorMessage,
    Events,
    Hello,
    LogLine,
    Message,
    Ready,
    ResultMessage,
    SupervisorMessage,
    Text,
    Usage,
)
from agentctl_protocol.records import VerdictRecord
from agentctl_protocol.report import UsageTotal
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.values import open_value
from agentctl_protocol.vocabulary import Reason, Result
from agentctl_supervisor import Supervisor
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AGENTS, MARKER_VARIABLE, ORDINARY_UID, REPOSITORY, alive
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.channel import channel_pair
from agentctl_testkit.ordinary import OrdinaryHome, installed

pytestmark = needs(Capability.NODE)

AGENT: Final = str(REPOSITORY / "examples" / "node_agent.mjs")
FAST: Final = "1000"
SLOW: Final = "20"
UNSUPERVISED: Final = 70


@pytest.fixture
def state(tmp_path: Path) -> Home:
    return Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)


def spec(marker: str, *words: str, speed: str = FAST, agent: str = AGENT) -> RunSpec:
    return RunSpec(
        argv=["node", agent, *words],
        cwd="/",
        env={"PATH": os.environ["PATH"], MARKER_VARIABLE: marker, "MODEL_WORDS_PER_S": speed},
    )


async def until(run: Run, kind: type, count: int = 1) -> Any:
    """The *count*-th event of *kind* that the run reports."""
    async for record in run.events():
        if isinstance(record.body, Events):
            for event in record.body.events:
                count -= isinstance(event, kind)
                if count == 0:
                    return event
    raise AssertionError(f"it ended before: {run.report}")


async def log_of(run: Run) -> list[Any]:
    return [record.body async for record in run.events()]


def events_in(log: Sequence[Any], kind: type) -> list[Any]:
    return [
        event
        for body in log
        if isinstance(body, Events)
        for event in body.events
        if isinstance(event, kind)
    ]


# --- with a supervisor --------------------------------------------------------------


async def test_it_does_its_work(state: Home, marker: str) -> None:
    """Value, calls, events, tokens and checkpoint arrive as from any agent."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec(marker, "rivers", "old bridges"))
        with trio.fail_after(30):
            report = await run.wait()
        log = await log_of(run)
    assert (report.result, report.exit_code) == (Result.SUCCEEDED, 0), run.stderr
    told = report.value["told"]
    assert [(one["topic"], one["words"], one["done"]) for one in told] == [
        ("rivers", 27, True),
        ("old bridges", 29, True),
    ]
    assert [(call.kind, call.name, call.outcome, call.result) for call in report.calls] == [
        ("model", "stub-1", "ok", told[0]["text"]),
        ("tool", "count_words", "ok", 27),
        ("model", "stub-1", "ok", told[1]["text"]),
        ("tool", "count_words", "ok", 29),
    ]
    assert report.usage == {"stub-1": UsageTotal(6 + 7, 27 + 29, "reported")}
    assert report.checkpoint == report.value
    assert "".join(text.text for text in events_in(log, Text)) == "".join(
        one["text"] for one in told
    )
    assert [message.text for message in events_in(log, Message)] == [
        one["text"].strip() for one in told
    ]
    [hello] = [body for body in log if isinstance(body, Hello)]
    assert hello.sdk.startswith("node_agent (node v")


async def test_it_ends_when_it_is_asked_to(state: Home, marker: str) -> None:
    """Stopped in mid-sentence it goes by itself, and nothing that it had is lost."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec(marker, "rivers", speed=SLOW))
        with trio.fail_after(30):
            await until(run, Text, 3)
            report = await run.stop(detail="enough")
        log = await log_of(run)
    assert report.result is Result.STOPPED
    assert report.detail.endswith("(enough): it ended when it was asked to")
    assert [(rung.step, rung.answered) for rung in report.ladder] == [("asked", "yes")]
    assert report.exit_code == 0, run.stderr
    [call] = report.calls
    assert (call.name, call.outcome) == ("stub-1", "cancelled")
    text = report.partial_text
    assert 3 <= len(text.split()) < 27
    assert report.checkpoint == {"told": [{"topic": "rivers", "text": text, "done": False}]}
    assert report.usage == {"stub-1": UsageTotal(6, len(text.split()), "partial")}
    assert [body for body in log if isinstance(body, Bye)] == [Bye(cancelled=True)]
    assert report.processes.survivors == 0
    assert alive(marker) == []


async def test_a_call_after_the_stop_is_refused(state: Home, marker: str) -> None:
    """It is told so, with the reason; the log holds the refusal and no grant."""
    agent = str(AGENTS / "node_asks_after_stop.mjs")
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec(marker, agent=agent))
        with trio.fail_after(30):
            await until(run, Text)
            report = await run.stop()
        log = await log_of(run)
    assert report.result is Result.STOPPED
    verdicts = [body for body in log if isinstance(body, VerdictRecord)]
    assert [(one.name, one.verdict) for one in verdicts] == [("shell", "refused")]
    assert [line.text for line in events_in(log, LogLine)] == [f"refused: {verdicts[0].why}"]
    assert [text.text for text in events_in(log, Text)] == ["ready to be stopped"]


async def test_it_takes_topics_while_it_runs(state: Home, marker: str) -> None:
    """Items sent to it are told of as they come; it ends when no more can."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec(marker, "--listen", "rivers"))
        with trio.fail_after(30):
            await run.send_input("bridges")
            await until(run, Message, 2)
            await run.send_input("Fjorde, Flüsse & Füchse 🦊")
            await until(run, Message, 3)
            run.end_input()
            report = await run.wait()
    assert report.result is Result.SUCCEEDED, run.stderr
    told = report.value["told"]
    assert [one["topic"] for one in told] == ["rivers", "bridges", "Fjorde, Flüsse & Füchse 🦊"]
    assert "seen Fjorde, Flüsse & Füchse 🦊 at dawn" in told[2]["text"]


async def test_a_stop_ends_its_waiting_for_input(state: Home, marker: str) -> None:
    """One that waits for topics that never come obeys, too."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec(marker, "--listen", "rivers"))
        with trio.fail_after(30):
            await until(run, Message)
            report = await run.stop()
    assert [(rung.step, rung.answered) for rung in report.ladder] == [("asked", "yes")]
    assert report.checkpoint["told"][0]["done"]


async def test_what_it_does_wrong_is_told(state: Home, marker: str) -> None:
    """An exception is the run's error, with its class; a program's outcome is its exit code."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec(marker, "--listen"))
        with trio.fail_after(30):
            await run.send_input("x" * 600_000)
            report = await run.wait()
    assert (report.result, report.reason, report.exit_code) == (Result.FAILED, Reason.EXIT, 1)
    assert "RangeError: a message of" in report.error


@needs(Capability.ORDINARY_PYTHON)
def test_an_ordinary_user_can_run_it() -> None:
    """With what everybody may read; by the command line."""
    with installed() as installation:
        home = OrdinaryHome(installation, installation.directory / "state" / "home")
        home.root.parent.mkdir()
        os.chown(home.root.parent, ORDINARY_UID, ORDINARY_UID)
        agent = str(installation.directory / "checkout" / "examples" / "node_agent.mjs")
        done = home.run(
            *("run", "-o", "json", "--", "node", agent, "rivers"),
            environment={"MODEL_WORDS_PER_S": FAST},
            as_ordinary_user=True,
            cwd=Path("/"),
        )
        report = done.json()
    assert (done.code, report["result"]) == (0, "succeeded"), done.err
    assert report["value"]["told"][0]["words"] == 27


# --- with a supervisor of the test's own ----------------------------------------------


class OtherEnd:
    """The agent's process, and the supervisor's end of its channel.

    What the agent says is checked against the protocol; what it is told is not.
    """

    def __init__(self, marker: str, *words: str, speed: str = FAST) -> None:
        self.pipes, theirs = channel_pair()
        self._channel: Channel[SupervisorMessage, ChildMessage] = supervisor_end()
        self._heard: list[ChildMessage] = []
        with theirs:
            self.process = subprocess.Popen(
                ["node", AGENT, *words],
                env={
                    "PATH": os.environ["PATH"],
                    "AGENTCTL_RUN_ID": "r-test",
                    "AGENTCTL_CHANNEL_FD": theirs.variable,
                    MARKER_VARIABLE: marker,
                    "MODEL_WORDS_PER_S": speed,
                },
                pass_fds=theirs.descriptors,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
        assert isinstance(self.hear(), Hello)

    def hear(self) -> ChildMessage:
        """Its next message."""
        while not self._heard:
            data = self.pipes.recv(1 << 16)
            assert data, "it closed the channel"
            self._heard += [message for message, _ in self._channel.receive(data)]
        return self._heard.pop(0)

    def hear_ask(self) -> Ask:
        """Its next ask; what it says before that is not looked at."""
        while not isinstance(message := self.hear(), Ask):
            pass
        return message

    def hear_out(self, *, twice: bool = False) -> list[ChildMessage]:
        """All until its end.  Asks are granted; *twice*: and then refused, which is too late."""
        heard: list[ChildMessage] = []
        while not isinstance(message := self.hear(), Bye):
            if isinstance(message, Ask):
                verdict = {"type": "verdict", "call": message.call, "verdict": "granted"}
                self.say(verdict, *([{**verdict, "verdict": "refused"}] if twice else []))
            heard.append(message)
        return [*heard, message]

    def say(self, *messages: dict[str, Any]) -> None:
        """One frame."""
        said = messages[0] if len(messages) == 1 else messages
        self.pipes.sendall(frame(msgspec.msgpack.encode(said)))

    def exit_code(self) -> int:
        return self.process.wait(20)


START: Final = {"type": "start", "run": "r-test"}
CANCEL: Final = {"type": "cancel", "reason": "user", "deadline_s": 5.0}


@pytest.fixture
def ends(marker: str) -> Iterator[list[OtherEnd]]:
    made: list[OtherEnd] = []
    yield made
    for end in made:
        end.process.kill()
        end.process.communicate()
        end.pipes.close()


def kinds(messages: Sequence[ChildMessage]) -> list[type]:
    return [type(message) for message in messages]


def value_of(messages: Sequence[ChildMessage]) -> Any:
    [result] = [message for message in messages if isinstance(message, ResultMessage)]
    return open_value(result.value)


def test_it_says_what_the_protocol_allows(marker: str, ends: list[OtherEnd]) -> None:
    """In its order, numbered without gaps; events come before what was said after them."""
    ends.append(end := OtherEnd(marker, "rivers"))
    end.say(START)
    heard = end.hear_out()
    assert end.exit_code() == 0
    assert isinstance(heard[0], Ready)
    calls = [message for message in heard if isinstance(message, Ask | CallFinished)]
    assert [(type(call), call.call) for call in calls] == [
        (Ask, "1"),
        (CallFinished, "1"),
        (Ask, "2"),
        (CallFinished, "2"),
    ]
    before_second_ask = heard[: heard.index(calls[2])]
    assert len(events_in(before_second_ask, Text)) == 27
    assert events_in(before_second_ask, Usage)[-1].completion_tokens == 27
    assert events_in(before_second_ask, Checkpoint) == []
    assert kinds(heard[-2:]) == [ResultMessage, Bye]


def test_a_stop_before_its_first_line_is_obeyed(marker: str, ends: list[OtherEnd]) -> None:
    """`cancel` in one breath with `start`: no call, and a bye."""
    ends.append(end := OtherEnd(marker, "rivers"))
    end.say(START, CANCEL)
    heard = end.hear_out()
    assert Ask not in kinds(heard)
    assert heard[-1] == Bye(cancelled=True)
    assert end.exit_code() == 0


def test_it_bears_any_order_and_any_cut(marker: str, ends: list[OtherEnd]) -> None:
    """Pings early, verdicts for nobody, twice, input before start, bytes one by one: it works."""
    ends.append(end := OtherEnd(marker, "--listen"))
    messages: list[dict[str, Any]] = [
        {"type": "ping"},
        {"type": "verdict", "call": "99", "verdict": "granted"},
        {"type": "verdict", "call": "", "verdict": "refused", "why": "x"},
        {"type": "input", "data": "rivers"},
        {"type": "ack", "seq": (1 << 63) - 1},
        {"type": "tomorrow", "field": {"a": [1, 2.5, None, True, b"x", -1 << 63]}},
        {**START, "input": {"__proto__": 1}, "later": [[]]},
        {**START, "run": "r-other"},
        {"type": "input", "data": "hills", "from": "somebody"},
        {"type": "input_end"},
        {"type": "input_end"},
        {"type": "input", "data": "too late"},
        {"type": "ping"},
    ]
    for message in messages:
        for byte in frame(msgspec.msgpack.encode(message)):
            end.pipes.sendall(bytes([byte]))
    end.pipes.sendall(b"".join(frame(msgspec.msgpack.encode(one)) for one in messages[:6]))
    end.say(*messages[:6])
    heard = end.hear_out(twice=True)
    assert [beat.loop for beat in heard if isinstance(beat, Beat)] == [1, 2, 3, 4]
    topics = [one["topic"] for one in value_of(heard)["told"]]
    assert topics[:2] == ["rivers", "hills"]
    assert end.exit_code() == 0


def test_a_second_cancel_and_a_late_verdict_change_nothing(
    marker: str, ends: list[OtherEnd]
) -> None:
    """A grant that comes after the cancel is used for no call."""
    ends.append(end := OtherEnd(marker, "rivers"))
    end.say(START)
    ask = end.hear_ask()
    end.say(CANCEL, {**CANCEL, "deadline_s": 1}, {"type": "input", "data": "x"})
    end.say({"type": "verdict", "call": ask.call, "verdict": "granted"})
    heard = end.hear_out()
    assert events_in(heard, Text) == []
    assert [one.outcome for one in heard if isinstance(one, CallFinished)] == ["cancelled"]
    assert heard[-1] == Bye(cancelled=True)


def test_a_refusal_without_a_stop_is_its_error(marker: str, ends: list[OtherEnd]) -> None:
    """It says why it has no result, and leaves with 1."""
    ends.append(end := OtherEnd(marker, "rivers"))
    end.say(START)
    ask = end.hear_ask()
    end.say({"type": "verdict", "call": ask.call, "verdict": "refused", "why": "no models"})
    heard = end.hear_out()
    [error] = [message for message in heard if isinstance(message, ErrorMessage)]
    assert (error.kind, error.text) == ("Error", "no models")
    assert end.exit_code() == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\0\x10\0\1",
        frame(b"\xc1"),
        frame(b"\x81\xa1"),
        frame(b"\xc0\xc0"),
        frame(b"\x81\xa4type\xa2\xff\xff"),
        frame(b"\x91" * 5000),
        frame(b"\xdd\xff\xff\xff\xff"),
        frame(b"\xc0"),
        b"\0\0\1",
    ],
    ids=lambda data: data[:8].hex() or "nothing",
)
def test_it_exits_at_once_when_nobody_is_there(
    data: bytes, marker: str, ends: list[OtherEnd]
) -> None:
    """End of file, or bytes that make no sense: nobody supervises it, so it must not go on."""
    ends.append(end := OtherEnd(marker, "--listen"))
    end.say(START)
    assert isinstance(end.hear(), Ready)
    end.pipes.sendall(data)
    if data in {b"", b"\0\0\1"}:
        end.pipes.shut_writing()
    before = time.monotonic()
    assert end.exit_code() == UNSUPERVISED
    assert time.monotonic() - before < 5


def test_it_says_that_it_wants_a_supervisor() -> None:
    """Started by hand it says how it is meant to be started."""
    done = subprocess.run(
        ["node", AGENT], env={"PATH": os.environ["PATH"]}, capture_output=True, check=False
    )
    assert done.returncode == 1
    assert b"agentctl run -- node" in done.stderr


# --- its msgpack ---------------------------------------------------------------------


def test_its_msgpack_is_msgpack() -> None:
    """Every shape and every length of it that JSON can fill, there and back again."""
    numbers = [
        sign * ((1 << bits) + around)
        for bits in (0, 4, 5, 7, 8, 15, 16, 31, 32, 52, 53, 62)
        for around in (-1, 0, 1)
        for sign in (1, -1)
    ]
    lengths = [0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536]
    value = {
        "numbers": [*numbers, (1 << 64) - 1, -1 << 63],
        "floats": [0.5, -1e300, 5e-324, 1.1],
        "texts": ["é" * length + "x" * length for length in lengths] + ["\0\n🦊\ufeff"],
        "bytes": [bytes(length) for length in lengths],
        "arrays": [[None] * length for length in lengths],
        "maps": [{str(key): key for key in range(length)} for length in lengths],
        "words": [None, True, False],
        "__proto__": {"constructor": []},
        "deep": msgspec.json.decode("[" * 100 + "]" * 100),
    }
    done = subprocess.run(
        ["node", str(AGENTS / "node_echo.mjs")],
        input=msgspec.msgpack.encode(value),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert msgspec.msgpack.decode(done.stdout) == value
