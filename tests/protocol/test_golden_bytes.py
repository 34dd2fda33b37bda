"""The wire and the log, byte for byte.  A change here breaks every program that speaks them."""

import struct
import zlib

import msgspec
import pytest

from agentctl_protocol import control, records, spawning
from agentctl_protocol import messages as m
from agentctl_protocol.channel import agent_end, supervisor_end, tag_of
from agentctl_protocol.framing import frame
from agentctl_protocol.report import Actor, FiredCondition, Processes, Survivor, Workspace
from agentctl_protocol.values import pack_value
from agentctl_protocol.vocabulary import By, Containment, Reason, Result, Rung

# "s" and a length stand for msgpack's own headers below: a2 "hi" is fixstr of two bytes.
GOLDEN_MESSAGES: list[tuple[msgspec.Struct, bytes]] = [
    (m.Hello(version=1), b"\x82\xa4type\xa5hello\xa7version\x01"),
    (m.Hello(version=1, sdk="py"), b"\x83\xa4type\xa5hello\xa7version\x01\xa3sdk\xa2py"),
    (m.Ready(), b"\x81\xa4type\xa5ready"),
    (
        m.Events(first=1, events=[m.Text("hi")]),
        b"\x83\xa4type\xa6events\xa5first\x01\xa6events\x91\x82\xa4type\xa4text\xa4text\xa2hi",
    ),
    (
        m.Ask(call="1", kind="tool", name="ls", args=pack_value({"path": "/"})),
        b"\x85\xa4type\xa3ask\xa4call\xa11\xa4kind\xa4tool\xa4name\xa2ls\xa4args\x81\xa4path\xa1/",
    ),
    (m.CallFinished(call="1"), b"\x82\xa4type\xadcall_finished\xa4call\xa11"),
    (
        m.CallFinished(call="1", outcome="error", result=pack_value(3), error="no"),
        (
            b"\x85\xa4type\xadcall_finished\xa4call\xa11\xa7outcome\xa5error\xa6result\x03"
            b"\xa5error\xa2no"
        ),
    ),
    (m.Beat(thread=3, loop=300), b"\x83\xa4type\xa4beat\xa6thread\x03\xa4loop\xcd\x01\x2c"),
    (m.ResultMessage(), b"\x81\xa4type\xa6result"),
    (m.ResultMessage(pack_value(42)), b"\x82\xa4type\xa6result\xa5value\x2a"),
    (
        m.ErrorMessage(kind="ValueError", text="no", traceback="tb", loading=True),
        (
            b"\x85\xa4type\xa5error\xa4kind\xaaValueError\xa4text\xa2no\xa9traceback\xa2tb"
            b"\xa7loading\xc3"
        ),
    ),
    (m.Bye(cancelled=True), b"\x82\xa4type\xa3bye\xa9cancelled\xc3"),
    # events, each also as a batch of one above
    (m.Text("hi", source="a"), b"\x83\xa4type\xa4text\xa4text\xa2hi\xa6source\xa1a"),
    (
        m.Message("go", source="a", kind="handoff", target="b"),
        b"\x85\xa4type\xa7message\xa4text\xa2go\xa6source\xa1a\xa4kind\xa7handoff\xa6target\xa1b",
    ),
    (
        m.Progress(done=1.0, total=2.0, note="n"),
        (
            b"\x84\xa4type\xa8progress\xa4done\xcb\x3f\xf0\0\0\0\0\0\0\xa5total\xcb\x40\0\0\0\0\0\0\0"
            b"\xa4note\xa1n"
        ),
    ),
    (
        m.Usage(model="m", call="1", prompt_tokens=7, completion_tokens=9, quality="partial"),
        (
            b"\x86\xa4type\xa5usage\xa5model\xa1m\xa4call\xa11\xadprompt_tokens\x07"
            b"\xb1completion_tokens\x09\xa7quality\xa7partial"
        ),
    ),
    (m.Checkpoint(pack_value([1])), b"\x82\xa4type\xaacheckpoint\xa5state\x91\x01"),
    (m.Artifact(path="/a", note="n"), b"\x83\xa4type\xa8artifact\xa4path\xa2/a\xa4note\xa1n"),
    (m.LogLine(text="x", level="error"), b"\x83\xa4type\xa3log\xa4text\xa1x\xa5level\xa5error"),
    # supervisor → child
    (
        m.Start(run="r", target="a:b", input=pack_value(1), paths=("/p",), max_frame=16),
        (
            b"\x86\xa4type\xa5start\xa3run\xa1r\xa6target\xa3a:b\xa5input\x01\xa5paths\x91\xa2/p"
            b"\xa9max_frame\x10"
        ),
    ),
    (
        m.Cancel(reason="user", deadline_s=5.0, detail="d"),
        (
            b"\x84\xa4type\xa6cancel\xa6reason\xa4user\xaadeadline_s\xcb\x40\x14\0\0\0\0\0\0"
            b"\xa6detail\xa1d"
        ),
    ),
    (
        m.Verdict(call="1", verdict="refused", why="stopped"),
        b"\x84\xa4type\xa7verdict\xa4call\xa11\xa7verdict\xa7refused\xa3why\xa7stopped",
    ),
    (m.Input(data=pack_value("x")), b"\x82\xa4type\xa5input\xa4data\xa1x"),
    (m.InputEnd(), b"\x81\xa4type\xa9input_end"),
    (m.Ack(seq=65536), b"\x82\xa4type\xa3ack\xa3seq\xce\0\x01\0\0"),
    (m.Ping(), b"\x81\xa4type\xa4ping"),
]

ALICE = spawning.ProcessIdentity(pid=7, start_time=8)
ALICE_BYTES = b"\x82\xa3pid\x07\xaastart_time\x08"

GOLDEN_RECORDS: list[tuple[msgspec.Struct, bytes]] = [
    (
        records.Created(supervisor=ALICE, boot_id="b", socket="/s", uid=1),
        b"\x85\xa4type\xa7created\xaasupervisor"
        + ALICE_BYTES
        + b"\xa7boot_id\xa1b\xa6socket\xa2/s\xa3uid\x01",
    ),
    (
        records.Created(supervisor=ALICE, boot_id="b", workspace="/w", private_workspace=True),
        b"\x85\xa4type\xa7created\xaasupervisor"
        + ALICE_BYTES
        + b"\xa7boot_id\xa1b\xa9workspace\xa2/w\xb1private_workspace\xc3",
    ),
    (
        records.Created(supervisor=ALICE, boot_id="b", pid_namespace=5),
        b"\x84\xa4type\xa7created\xaasupervisor"
        + ALICE_BYTES
        + b"\xa7boot_id\xa1b\xadpid_namespace\x05",
    ),
    (
        records.ContainedRecord(
            warden=ALICE,
            root=ALICE,
            containment=Containment.PID_NAMESPACE,
            namespace=9,
            cgroup="/c",
        ),
        b"\x86\xa4type\xa9contained\xa6warden"
        + ALICE_BYTES
        + b"\xa4root"
        + ALICE_BYTES
        + b"\xabcontainment\xadpid-namespace\xa9namespace\x09\xa6cgroup\xa2/c",
    ),
    (records.Started(layers=("x",)), b"\x82\xa4type\xa7started\xa6layers\x91\xa1x"),
    (
        records.Output(stream="stdout", data=b"\0\xff"),
        b"\x83\xa4type\xa6output\xa6stream\xa6stdout\xa4data\xc4\x02\x00\xff",
    ),
    (
        records.Estimate("1", "m", 3, 4, "e"),
        (
            b"\x86\xa4type\xa8estimate\xa4call\xa11\xa5model\xa1m\xadprompt_tokens\x03"
            b"\xb1completion_tokens\x04\xa9estimator\xa1e"
        ),
    ),
    (
        records.ConditionsMet((FiredCondition("external()", "s", 1.5),)),
        (
            b"\x82\xa4type\xaeconditions_met\xaaconditions\x91\x83\xa9condition"
            b"\xaaexternal()\xa8sentence\xa1s\xa4at_s\xcb?\xf8\x00\x00\x00\x00\x00\x00"
        ),
    ),
    (
        records.Waiting(call="1", kind="tool", name="n", rule="n:*"),
        (b"\x85\xa4type\xa7waiting\xa4call\xa11\xa4kind\xa4tool\xa4name\xa1n\xa4rule\xa3n:*"),
    ),
    (
        records.VerdictRecord(
            call="1", kind="model", name="n", verdict="granted", args=pack_value(1)
        ),
        (
            b"\x86\xa4type\xa7verdict\xa4call\xa11\xa4kind\xa5model\xa4name\xa1n"
            b"\xa7verdict\xa7granted\xa4args\x01"
        ),
    ),
    (records.InputSent(bytes=4), b"\x82\xa4type\xa5input\xa5bytes\x04"),
    (
        records.Stop(
            result=Result.STOPPED,
            reason=Reason.USER,
            detail="d",
            actor=Actor("uid", "0"),
            grace_s=5.0,
            term_grace_s=2.0,
            kill=True,
            intent=True,
        ),
        (
            b"\x89\xa4type\xa4stop\xa6result\xa7stopped\xa6reason\xa4user\xa6detail\xa1d"
            b"\xa5actor\x82\xa4kind\xa3uid\xa2id\xa10\xa7grace_s\xcb\x40\x14\0\0\0\0\0\0"
            b"\xacterm_grace_s\xcb\x40\0\0\0\0\0\0\0\xa4kill\xc3\xa6intent\xc3"
        ),
    ),
    (
        records.RungRecord(step=Rung.SIGTERM, processes=3),
        b"\x83\xa4type\xa4rung\xa4step\xa7sigterm\xa9processes\x03",
    ),
    (
        records.RungRecord(step=Rung.SIGKILL, open_files=("a",), open_unread="w"),
        (b"\x84\xa4type\xa4rung\xa4step\xa7sigkill\xaaopen_files\x91\xa1a\xabopen_unread\xa1w"),
    ),
    (
        records.Answered(step=Rung.ASKED, how="no"),
        b"\x83\xa4type\xa8answered\xa4step\xa5asked\xa3how\xa2no",
    ),
    (
        records.Exit(code=None, signal=9, cpu_s=1.0, max_rss_bytes=1, detail="d"),
        (
            b"\x85\xa4type\xa4exit\xa6signal\x09\xa5cpu_s\xcb\x3f\xf0\0\0\0\0\0\0"
            b"\xadmax_rss_bytes\x01\xa6detail\xa1d"
        ),
    ),
    (records.Illegal(detail="d"), b"\x82\xa4type\xa7illegal\xa6detail\xa1d"),
    (
        records.RefusedRecord(reason=Reason.NOT_FOUND, detail="d", hint="h"),
        b"\x84\xa4type\xa7refused\xa6reason\xa9not_found\xa6detail\xa1d\xa4hint\xa1h",
    ),
    (
        records.WorkspaceRecord(Workspace(path="/w", private=True, changed=("a",), exposed=("b",))),
        (
            b"\x82\xa4type\xa9workspace\xa9workspace\x88\xa4path\xa2/w\xa7private\xc3"
            b"\xa7changed\x91\xa1a\xb0changed_left_out\x00\xaaincomplete\xa0"
            b"\xa7special\x90\xacopen_at_kill\x90\xa7exposed\x91\xa1b"
        ),
    ),
    (
        records.End(
            processes=Processes(seen=3, killed=2, survivors=1),
            survivors=(Survivor(pid=7, command="x"),),
            torn_bytes=1,
            dropped_bytes=2,
            detail="d",
        ),
        (
            b"\x86\xa4type\xa3end\xa9processes\x84\xa4seen\x03\xa6killed\x02\xa9survivors\x01"
            b"\xa8at_least\xc2"
            b"\xa9survivors\x91\x82\xa3pid\x07\xa7command\xa1x\xaatorn_bytes\x01"
            b"\xaddropped_bytes\x02\xa6detail\xa1d"
        ),
    ),
    (records.Lost(detail="d"), b"\x82\xa4type\xa4lost\xa6detail\xa1d"),
]

GOLDEN_CONTROL: list[tuple[msgspec.Struct, bytes]] = [
    (control.Ping(), b"\x81\xa4type\xa4ping"),
    (
        control.StopRequest(run="r", grace_s=1.0, term_grace_s=2.0, reason="x"),
        (
            b"\x85\xa4type\xa4stop\xa3run\xa1r\xa7grace_s\xcb\x3f\xf0\0\0\0\0\0\0"
            b"\xacterm_grace_s\xcb\x40\0\0\0\0\0\0\0\xa6reason\xa1x"
        ),
    ),
    (
        control.KillRequest(run="r", reason="x"),
        b"\x83\xa4type\xa4kill\xa3run\xa1r\xa6reason\xa1x",
    ),
    (control.Pong(version=1, pid=7), b"\x82\xa4type\xa4pong\xa3pid\x07"),
    (
        control.Step(step=Rung.ASKED, answered="a", processes=1, left_s=1.0),
        (
            b"\x85\xa4type\xa4step\xa4step\xa5asked\xa8answered\xa1a\xa9processes\x01"
            b"\xa6left_s\xcb\x3f\xf0\0\0\0\0\0\0"
        ),
    ),
    (
        control.Failed(detail="d", no_such_run=True),
        b"\x83\xa4type\xa6failed\xa6detail\xa1d\xabno_such_run\xc3",
    ),
]


def _name(value: object) -> str:
    return type(value).__name__ if isinstance(value, msgspec.Struct) else ""


@pytest.mark.parametrize(
    ("message", "expected"), GOLDEN_MESSAGES + GOLDEN_RECORDS + GOLDEN_CONTROL, ids=_name
)
def test_a_message_has_these_bytes(message: msgspec.Struct, expected: bytes) -> None:
    """Each message, record and control message is written in exactly these bytes, and read back."""
    assert msgspec.msgpack.encode(message) == expected
    assert msgspec.msgpack.encode(msgspec.msgpack.decode(expected, type=type(message))) == expected


def test_every_message_and_record_has_golden_bytes() -> None:
    """No message of the channel and no record body of ours is missing from the lists above."""
    channel = {*m.ChildMessage.__args__, *m.Event.__args__, *m.SupervisorMessage.__args__}
    assert {type(message) for message, _ in GOLDEN_MESSAGES} == channel
    assert {type(body) for body, _ in GOLDEN_RECORDS} == set(records.SupervisorRecord.__args__)


def test_a_frame_is_a_length_and_a_body() -> None:
    """Four bytes big-endian, then the body."""
    assert frame(b"abc") == b"\0\0\0\x03abc"


def test_a_batch_is_an_array() -> None:
    """Several messages in one frame are a msgpack array of them; one alone is a bare map."""
    channel = agent_end()

    one = channel.send(m.Hello(version=1))
    two = channel.send(m.Ready(), m.Beat())

    assert one[4:5] == b"\x82"
    assert two == b"\0\0\0\x18\x92\x81\xa4type\xa5ready\x81\xa4type\xa4beat"


def test_a_segment_header_has_these_bytes() -> None:
    """Magic, format version, length of the run id, run id."""
    assert records.segment_header("r-abcdefgh") == b"AGCTLLOG\0\0\0\x01\0\0\0\x0ar-abcdefgh"


def test_a_record_has_these_bytes() -> None:
    """Length, crc32 of all that follows it, sequence, nanoseconds, by, body."""
    body = b"\x81\xa4type\xa3end"
    checked = struct.pack(">QQB", 5, 6, 1) + body

    written = records.pack_record(5, 6, By.CHILD, body)

    assert written == struct.pack(">II", len(body), zlib.crc32(checked)) + checked
    assert written[:8] == b"\0\0\0\x0a\x04\xb5\xea\x75"
    assert records.crc_of(5, 6, By.CHILD, body) == zlib.crc32(checked)


@pytest.mark.parametrize("body", [body for body, _ in GOLDEN_RECORDS], ids=_name)
def test_the_supervisors_records_are_read_back_as_they_were(body: msgspec.Struct) -> None:
    """Decoding a body gives the record that was encoded, of its own type."""
    encoded = msgspec.msgpack.encode(body)

    read = records.decode_body(By.SUPERVISOR, encoded)

    assert type(read) is type(body)
    assert msgspec.msgpack.encode(read) == encoded


@pytest.mark.parametrize("by", By)
def test_a_record_type_of_a_later_version_is_none(by: By) -> None:
    """A reader that does not know a record's type says so and goes on."""
    assert records.decode_body(by, msgspec.msgpack.encode({"type": "of a later version"})) is None


def test_a_field_of_a_later_version_is_ignored() -> None:
    """Both ends accept a message with a field that they do not know."""
    supervisor, agent = supervisor_end(), agent_end()
    hello = msgspec.msgpack.encode({"type": "hello", "version": 1, "colour": ["red"]})
    start = msgspec.msgpack.encode({"type": "start", "run": "r", "colour": {"a": 1}})

    [(heard, raw)] = supervisor.receive(frame(hello))
    [(answer, _)] = agent.receive(frame(start))

    assert heard == m.Hello(version=1)
    assert raw == hello, "what is logged is what was said"
    assert tag_of(answer) == "start"
