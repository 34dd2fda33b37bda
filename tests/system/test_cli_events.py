"""`agentctl events`: every record and every event of a batch, as JSON that never changes shape."""

import json
from typing import Any

import msgspec
import pytest

from agentctl_protocol.messages import Ask, Checkpoint, Events, LogLine, Message, Text, Usage
from agentctl_protocol.records import Output, VerdictRecord
from agentctl_protocol.values import pack_value
from agentctl_testkit import AgentctlHome, Finished
from agentctl_testkit.held import HeldRun


def _objects(done: Finished) -> list[dict[str, Any]]:
    assert (done.code, done.err) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_batch_is_several_events_and_all_have_the_same_front(home: AgentctlHome) -> None:
    """Numbers without gaps, time in UTC, who vouches for it, the agent's name, the type."""
    with HeldRun(home, "demo") as run:
        batch = Events(
            1,
            [
                Text("par", source="writer"),
                Usage(model="m", prompt_tokens=3),
                Checkpoint(pack_value({"at": [1, None]})),
                Message("done", source="writer"),
            ],
        )
        first = run.say(batch, count=4)
        run.say(Ask("c1", "tool", "shell", pack_value(["ls"])))
        run.append(VerdictRecord("c1", "tool", "shell", "granted", args=pack_value(["ls"])))
    events = _objects(home.run("events", "demo"))
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert all(list(e)[:5] == ["seq", "time", "by", "source", "type"] for e in events)
    assert all(e["time"].endswith("Z") for e in events)
    told = events[first - 1 : first + 5]
    assert [(e["type"], e["by"], e["source"]) for e in told] == [
        ("text", "child", "writer"),
        ("usage", "child", ""),
        ("checkpoint", "child", ""),
        ("message", "child", "writer"),
        ("ask", "child", ""),
        ("verdict", "supervisor", ""),
    ]
    assert told[2]["state"] == {"at": [1, None]}
    assert (told[1]["prompt_tokens"], told[1]["completion_tokens"]) == (3, 0)
    assert (told[5]["args"], told[5]["why"]) == (["ls"], "")
    assert [e["type"] for e in events][-2:] == ["exit", "end"]


def test_output_is_text_or_else_base64(home: AgentctlHome) -> None:
    """Nothing of it is lost or replaced."""
    with HeldRun(home, "demo") as run:
        run.append(Output("stdout", "ü\n".encode()))
        run.append(Output("stderr", b"\xff\x00"))
    told = [e for e in _objects(home.run("events", "demo")) if e["type"] == "output"]
    assert [(e["stream"], e.get("text"), e.get("base64")) for e in told] == [
        ("stdout", "ü\n", None),
        ("stderr", None, "/wA="),
    ]


def test_no_line_can_drive_a_terminal_and_none_is_two(home: AgentctlHome) -> None:
    """Control and format characters are escaped, and still the same characters to a reader."""
    evil = "\x1b]0;x\x07\x9b2J\u202e\u2028\n\U000e0041"
    with HeldRun(home, "demo") as run:
        run.say(Events(1, [LogLine(evil), Text(evil, source=evil)]), count=2)
    done = home.run("events", "demo")
    assert all(line.isprintable() for line in done.out[:-1].split("\n"))
    log, text = (e for e in _objects(done) if e["by"] == "child")
    assert (log["text"], text["text"], text["source"]) == (evil, evil, evil)


def test_since_begins_with_that_number(home: AgentctlHome) -> None:
    """In the middle of a batch and of a log of many segments."""
    with HeldRun(home, "demo", segment_bytes=300) as run:
        for number in range(60):
            run.say(Events(3 * number + 1, [Text(f"{number}.{part}") for part in range(3)]), 3)
        assert run.segments > 10
    every = _objects(home.run("events", "demo"))
    for since in (0, 1, 5, 100, len(every), len(every) + 1):
        assert _objects(home.run("events", "--since", str(since), "demo")) == [
            event for event in every if event["seq"] >= since
        ]


def test_following_ends_with_the_run(home: AgentctlHome) -> None:
    """Each event comes as it is appended; `end` is the last."""
    with HeldRun(home, "demo") as run:
        following = home.start("events", "-f", "--since", "3", "-o", "jsonl", "demo")
        assert following.stdout is not None
        for number in range(3):
            run.say(Events(number + 1, [Text(str(number))]))
            assert json.loads(following.stdout.readline())["text"] == str(number)
        run.finish()
        out, err = following.communicate(timeout=60)
    assert [json.loads(line)["type"] for line in out.splitlines()] == ["exit", "end"]
    assert (following.returncode, err) == (0, b"")


def test_a_value_that_is_none_hides_no_event(home: AgentctlHome) -> None:
    """What the child claims to be a value and cannot be one is told in its place."""
    with HeldRun(home, "demo") as run:
        run.say(Events(1, [Checkpoint(msgspec.Raw(b"\xc7\x01\x05x"))]))
    (event,) = (e for e in _objects(home.run("events", "demo")) if e["by"] == "child")
    assert event["state"].startswith("(bad state")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "whose events"),
        (["--since", "-3", "a"], 2, "--since"),
        (["--since", "soon", "a"], 2, "not a number"),
        (["-o", "json", "a"], 2, "json"),
        (["nosuch"], 4, "no such run"),
    ],
)
def test_a_slip_is_one_error_with_a_hint(
    home: AgentctlHome, arguments: list[str], code: int, said: str
) -> None:
    """As everywhere."""
    done = home.run("events", *arguments)
    assert (done.code, done.stdout) == (code, b"")
    assert [line.partition(":")[0] for line in done.err.splitlines()] == ["error", "hint"]
    assert said in done.err
