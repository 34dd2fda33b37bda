"""What the commands print, word for word, through a pipe and on a terminal of 80 columns.

The texts are in ``golden/``.  ``AGENTCTL_GOLDEN=write`` writes them anew; then look at the
difference before it is committed.
"""

import dataclasses
import os
import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from agentctl_protocol.messages import (
    Artifact,
    Ask,
    CallFinished,
    Checkpoint,
    ErrorMessage,
    Events,
    ResultMessage,
    Text,
    Usage,
)
from agentctl_protocol.records import (
    Answered,
    ContainedRecord,
    Created,
    End,
    Exit,
    Lost,
    Output,
    Record,
    RecordBody,
    RefusedRecord,
    RungRecord,
    Started,
    Stop,
    VerdictRecord,
    Waiting,
    pack_record,
    segment_header,
)
from agentctl_protocol.report import Actor, Processes, Survivor
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import By, Containment, Reason, Result, Rung
from agentctl_supervisor.cli.commands.ps import table
from agentctl_supervisor.cli.commands.show import page
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.store.log_reader import segment_name
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AgentctlHome
from agentctl_testkit.pty import Emulator, Transcript, transcripts

_GOLDEN: Final = Path(__file__).with_name("golden")
_THEN_NS: Final = 1_767_323_045_000_000_000  # 2026-01-02 03:04:05 UTC
_STATUS: Final = re.compile(rb"\x1b\[2m[^\x1b]*\x1b\[0m\x1b\[K\r(\r\x1b\[J)?")
"""A status line and how it is taken away: whether there is one is a question of speed."""
_FROM_CHILD: Final = (Ask, CallFinished, ErrorMessage, Events, ResultMessage)
_LAYERS: Final = ("pid namespace", "mount namespace", "read-only /proc", "no new privileges")
_HOSTILE: Final = (
    b"\x1b]52;c;cm0gLXJmIH4=\x07clipboard\n"
    b"\x1b]0;pwned\x1b\\title\n"
    b"\x1b[2J\x1b[Hcleared\n"
    b"\x1b[?1049halternate\n"
    b"\x1b[?25lhidden \x1b[31mred\x1b[0m\n"
    b"100%\rover\n"
    b"\xe2\x80\xaegnp.exe\n"
    b"\x1bP+q544e\x1b\\asked\x1b[c\n"
    b"\x9b5n not UTF-8, torn \x1b["
)

_VIEWS: Final = (
    *(["ps"], ["ps", "-a"]),
    *(["show", name] for name in ("value", "failed", "stubborn", "late", "lost", "refused")),
    *(["show", "hostile"], ["logs", "hostile"], ["logs", "-n", "2", "value"]),
    *(["logs", "--timestamps", "failed"], ["stop", "value"]),
)

_ERRORS: Final = (
    *(["frobnicate"], ["stopp"], ["--help", "nosuch"], ["ps", "extra"], ["ps", "--al"]),
    *(["run"], ["run", "--"], ["run", "agent.py"], ["run", "ls", "-l"], ["run", "m:f", "word"]),
    *(["run", "m:f", "--", "x"], ["run", "no good:f"], ["run", "--tim", "3", "--", "x"]),
    *(["run", "--time", "0", "--", "x"], ["run", "--time", "5x", "--", "x"]),
    *(["run", "--grace", "1m1h", "--", "x"], ["run", "--tag", "a", "--", "x"]),
    *(["run", "--name", "a b", "--", "x"], ["run", "--name", "r-abcdefgh", "--", "x"]),
    *(["run", "--sandbox", "wall", "--", "x"], ["run", "--python", "python3", "--", "x"]),
    *(["run", "--input", "{", "m:f"], ["run", "--input", "@/nowhere", "m:f"]),
    *(["run", "-i", "--input", "-", "m:f"], ["run", "--input", "1", "--", "x"]),
    *(["run", "--", "/nowhere/to/be/found"], ["run", "--", "/etc/passwd"]),
    *(["run", "no_such_module_anywhere:f"],),
    *(["stop"], ["stop", "nosuch"], ["stop", "valeu"], ["stop", "--all", "value"]),
    *(["stop", "la"], ["stop", "--grace", "soon", "value"], ["kill"], ["kill", "nosuch"]),
    *(["show"], ["show", "nosuch"], ["show", "value", "late"], ["show", "\x1b]0;evil\x07"]),
    *(["show", "damaged"], ["logs"], ["logs", "nosuch"], ["logs", "-n", "x", "value"]),
    *(["events"], ["events", "nosuch"], ["events", "--since", "x", "value"]),
    *(["wait"], ["wait", "nosuch"], ["wait", "--timeout", "x", "value"]),
    *(["rerun"], ["rerun", "nosuch"], ["prune", "--older", "x"]),
    *(["approve"], ["approve", "nosuch"], ["approve", "value"], ["approve", "value", "c1"]),
    *(["approve", "a", "b", "c"], ["approve", "--all", "value", "c1"], ["deny"], ["deny", "value"]),
    *(["signal"], ["signal", "nosuch"], ["signal", "value"], ["export"], ["export", "nosuch"]),
    *(["resume"], ["resume", "nosuch"], ["resume", "value"], ["resume", "refused"]),
    *(["run", "--calls", "x", "m:f"], ["run", "--calls-of", "shell", "m:f"]),
    *(["run", "--tokens", "-1", "m:f"], ["run", "--approve", "", "m:f"]),
    *(["run", "--stop-when", 'text("a") | max_mesages(2)', "m:f"],),
    *(["run", "--stop-when", "max_messages(0)", "m:f"], ["run", "--stop-when", "", "m:f"]),
)


Records = list[tuple[float, RecordBody]]
"""Seconds since the beginning, and what was written down then."""


def _begun(*records: tuple[float, RecordBody]) -> Records:
    nobody = ProcessIdentity(4711, 1)
    return [
        (0.0, Created(supervisor=nobody, boot_id="an earlier one")),
        (0.0, ContainedRecord(nobody, nobody, Containment.PID_NAMESPACE)),
        (0.0, Started(layers=_LAYERS)),
        *records,
    ]


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


def _output(data: bytes) -> Output:
    return Output(stream="stdout", data=data)


def _ladder(at: float, *rungs: tuple[Rung, float, str]) -> Records:
    records: Records = []
    for rung, seconds, answered in rungs:
        records.append((at, RungRecord(step=rung, processes=4)))
        at += seconds
        records.append((at, Answered(step=rung, how=answered)))
    return records


_RUNS: Final[dict[str, tuple[RunSpec, Records]]] = {
    "value": (
        RunSpec(target="research:answer", time_s=60.0, tags={"team": "search", "ticket": "42"}),
        _begun(
            (0.1, Ask("1", "model", "large", _raw({"q": "why?"}))),
            (0.1, VerdictRecord("1", "model", "large", "granted", args=_raw({"q": "why?"}))),
            (1.6, Events(1, [Usage("large", "1", 1200, 80), Text("The answer is "), Text("42")])),
            (1.6, CallFinished("1")),
            (1.7, Ask("2", "tool", "search")),
            (1.7, VerdictRecord("2", "tool", "search", "granted")),
            (1.95, CallFinished("2", "error", error="HTTP 503")),
            (2.0, _output(b"one\ntwo\nthree\nfour")),
            (3.0, Events(4, [Artifact("out/report.md"), Checkpoint(_raw({"step": 3}))])),
            (3.2, ResultMessage(_raw({"answer": 42, "sources": ["https://example.org/a"]}))),
            (3.25, Exit(code=0, cpu_s=0.5)),
            (3.25, End()),
        ),
    ),
    "failed": (
        RunSpec(argv=["python", "agent.py", "--verbose"]),
        _begun(
            (1.0, _output(b"Traceback (most recent call last):\n" + b"x" * 120)),
            (1.0, _output(b"\nKeyError: 'answer'\n")),
            (120.0, Exit(code=3, cpu_s=11.2)),
            (120.0, End()),
        ),
    ),
    "stubborn": (
        RunSpec(argv=["sh", "crawl.sh"]),
        _begun(
            (
                20.0,
                Stop(Result.STOPPED, Reason.USER, "enough", Actor("uid", "1000 (ada)"), 5.0, 2.0),
            ),
            *_ladder(
                20.0,
                (Rung.ASKED, 5.0, "no"),
                (Rung.SIGTERM, 2.0, "no"),
                (Rung.SIGKILL, 0.02, "yes"),
            ),
            (27.02, Exit(signal=9, cpu_s=3.0)),
            (27.02, End(Processes(seen=4, killed=3))),
        ),
    ),
    "late": (
        RunSpec(argv=["./slow", *["argument"] * 30], time_s=10.0),
        _begun(
            (
                10.0,
                Stop(
                    *(Result.LIMIT, Reason.TIME, "time limit of 10 s"),
                    *(Actor("limit", "time"), 5.0, 2.0),
                ),
            ),
            *_ladder(10.0, (Rung.ASKED, 0.5, "yes")),
            (10.5, Exit(code=0, cpu_s=0.1)),
            (10.5, End(Processes(seen=1))),
        ),
    ),
    "later": (RunSpec(argv=["true"]), _begun((0.01, Exit(code=0)), (0.01, End()))),
    "lost": (
        RunSpec(target="mailer:main"),
        _begun(
            (0.5, Ask("1", "tool", "send_mail")),
            (0.5, VerdictRecord("1", "tool", "send_mail", "granted")),
            (0.6, Events(1, [Text("Dear customer, ")])),
            (9.0, Lost("its supervisor (pid 4711) was gone")),
            (9.0, End(Processes(2, 0, 1), (Survivor(4712, "sleep 60"),))),
        ),
    ),
    "refused": (
        RunSpec(argv=["agentx"]),
        [
            (0.0, Created(supervisor=ProcessIdentity(4711, 1), boot_id="an earlier one")),
            (0.1, RefusedRecord(Reason.NOT_FOUND, "agentx: not found on PATH")),
            (0.1, End()),
        ],
    ),
    "hostile": (
        RunSpec(argv=["printf", "\x1b]0;pwned\x07"]),
        _begun(
            (0.1, _output(_HOSTILE)),
            (0.2, ErrorMessage("Evil", "\x1b[2Jboom\r\nsecond line")),
            (0.3, Exit(signal=11)),
            (0.3, End(detail="\x1b]52;c;cm0=\x07")),
        ),
    ),
}


@pytest.fixture
def state(tmp_path: Path) -> AgentctlHome:
    """Finished runs of every kind, with the times and sizes that the golden files have."""
    home = AgentctlHome(tmp_path / "home", {"TZ": "UTC"})
    store = Home.open(home.environment, create=True)
    for name, (unnamed, records) in _RUNS.items():
        spec = msgspec.structs.replace(unnamed, name=name)
        directory = store.create_run(spec)
        fold = Fold(directory.id, spec)
        segment = [segment_header(directory.id)]
        seq = 1
        for at, body in records:
            by = By.CHILD if isinstance(body, _FROM_CHILD) else By.SUPERVISOR
            time_ns = _THEN_NS + int(at * 1e9)
            segment.append(pack_record(seq, time_ns, by, msgspec.msgpack.encode(body)))
            fold.apply(Record(seq, time_ns, by, body))
            seq += len(body.events) if isinstance(body, Events) else 1
        data = b"".join(segment)
        (directory.path / segment_name(1)).write_bytes(data)
        directory.write_report(fold.report(log_bytes=len(data)))
        directory.unlock()
    damaged = store.create_run(RunSpec(argv=["x"], name="damaged"))
    (damaged.path / "spec").write_bytes(b"{")
    damaged.unlock()
    return home


def _normal(text: str, home: AgentctlHome) -> str:
    text = text.replace(str(home.root), "$AGENTCTL_HOME")
    text = re.sub(r"\br-[a-z2-7]{8}\b", "r-xxxxxxxx", text)
    text = re.sub(r"\d{2}:\d{2}:\d{2}\.\d{3}", "HH:MM:SS.mmm", text)
    text = re.sub(r"\d{4}-\d{2}-\d{2}THH", "YYYY-MM-DDTHH", text)
    text = re.sub(r"( +)\d+d(?=  )", lambda m: m[1] + "AGE", text)
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def _page(
    commands: Sequence[Sequence[str]],
    piped: Sequence[Transcript],
    shown: Sequence[Transcript],
    home: AgentctlHome,
) -> str:
    lines = []
    for command, pipe, terminal in zip(commands, piped, shown, strict=True):
        assert pipe.code == terminal.code, command
        lines.append(_normal(f"$ agentctl {shlex.join(command)}   [{pipe.code}]", home))
        for mark, said in (("1", pipe.out), ("2", pipe.err), ("t", terminal.out)):
            text = _normal(said.decode(errors="backslashreplace").replace("\r\n", "\n"), home)
            lines += [
                f"{mark}| {line}".rstrip() for line in text.removesuffix("\n").split("\n") if text
            ]
        lines.append("")
    return "\n".join(lines)


@pytest.mark.parametrize(("name", "commands"), [("views", _VIEWS), ("errors", _ERRORS)])
def test_every_word_is_as_it_was(
    state: AgentctlHome, name: str, commands: Sequence[Sequence[str]]
) -> None:
    """Nothing that people read changes unseen; on a terminal all fits and nothing is left on."""
    piped = transcripts(commands, state.environment, on_terminal=False)
    shown = [
        dataclasses.replace(one, out=_STATUS.sub(b"", one.out))
        for one in transcripts(commands, state.environment, on_terminal=True)
    ]
    for command, transcript in zip(commands, shown, strict=True):
        terminal = Emulator()
        terminal.feed(transcript.out)
        assert terminal.is_as_new(), command
        assert not re.search(rb"\x1b(?!\[[\d;]*m)", transcript.out), command
    page = _page(commands, piped, shown, state)
    path = _GOLDEN / f"{name}.txt"
    if os.environ.get("AGENTCTL_GOLDEN") == "write":
        path.write_text(page)
    assert page == path.read_text()


def test_a_run_that_waits_is_told_with_all_that_has_to_be_decided() -> None:
    """What waits, with its arguments, because of which rule, and by which command to decide."""
    waiting: Records = [(0.02, Ask("c1", "tool", "read_file", _raw("notes.txt")))]
    waiting += [(0.02, VerdictRecord("c1", "tool", "read_file", "granted"))]
    waiting += [(0.03, CallFinished("c1"))]
    asked = [{"cmd": "rm -rf build"}, "x" * 500, None, *range(8), "one\ntwo\u202e", *[0] * 20]
    for number, args in enumerate(asked, 1):
        waiting += [(0.04, Ask(f"a b; {number}", "tool", "shell", _raw(args)))]
        waiting += [(0.04, Waiting(f"a b; {number}", "tool", "shell", "shell:*", number))]
    spec = RunSpec(target="errand.py:main", name="careful", approve=["shell:*"], calls=20)
    fold = Fold("r-xxxxxxxx", spec)
    for number, (at, body) in enumerate(_begun(*waiting)):
        by = By.CHILD if isinstance(body, _FROM_CHILD) else By.SUPERVISOR
        fold.apply(Record(number + 1, _THEN_NS + int(at * 1e9), by, body))
    now = datetime.fromtimestamp(_THEN_NS / 1e9 + 75, UTC)
    shown = page(fold.report(), [], now, 80)
    lines = [*table([fold.report().brief()], now.timestamp(), 80), "", *shown, ""]
    path = _GOLDEN / "waiting.txt"
    text = re.sub(r"\d{4}-\d{2}-\d{2} \d{2}", "YYYY-MM-DD HH", "\n".join(lines))
    if os.environ.get("AGENTCTL_GOLDEN") == "write":
        path.write_text(text)
    assert max(map(len, lines)) <= 80
    assert text == path.read_text()


def test_without_colours_a_terminal_gets_what_a_pipe_gets(state: AgentctlHome) -> None:
    """``NO_COLOR`` and ``TERM=dumb`` each take away all that is not text."""
    commands = [*_ERRORS[:2], ["ps"], ["show", "hostile"], ["logs", "value"]]
    piped = transcripts(commands, state.environment, on_terminal=False)
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        shown = transcripts(commands, {**state.environment, **plain}, on_terminal=True)
        assert [(one.code, one.out.replace(b"\r\n", b"\n")) for one in shown] == [
            (one.code, one.err + one.out) for one in piped
        ]


def test_the_doctor_fits_on_a_terminal(home: AgentctlHome) -> None:
    """What it finds depends on the machine; a line for each thing, in colour."""
    (shown,) = transcripts([["doctor"]], home.environment, on_terminal=True)
    assert b"\x1b[32mok" in shown.out
    lines = re.sub(r"\x1b\[\d*m", "", shown.out.decode()).splitlines()
    assert all(re.match(r"(ok|warn|fail) |  |\d+ ok", line) for line in lines)
    assert all(len(line) <= 80 or "fix: " in line for line in lines)
