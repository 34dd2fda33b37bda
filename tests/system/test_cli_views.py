"""What `ps`, `show`, `stop` and the end of `run` say about a report."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agentctl_protocol.control import Step
from agentctl_protocol.report import (
    Actor,
    Call,
    LadderStep,
    Processes,
    Report,
    Survivor,
    UsageTotal,
)
from agentctl_protocol.vocabulary import Reason, Result, Rung, State
from agentctl_supervisor.cli.commands.ps import row, table
from agentctl_supervisor.cli.commands.show import page
from agentctl_supervisor.cli.commands.stop import sentence
from agentctl_supervisor.cli.wording.narration import Narrator
from agentctl_supervisor.cli.wording.phrases import outcome, summary
from agentctl_supervisor.client import StopOutcome

_THEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_NOW = _THEN + timedelta(seconds=200)
_NOW_S = _NOW.timestamp()


def _report(**fields: Any) -> Report:
    return Report(
        **{
            "id": "r-abcdefgh",
            "name": "demo",
            "command": "python agent.py",
            "state": State.FINISHED,
            "created_at": _THEN,
            "started_at": _THEN,
            **fields,
        }
    )


_STOPPED = _report(
    result=Result.STOPPED,
    reason=Reason.USER,
    actor=Actor("uid", "0 (root)"),
    ended_at=_THEN + timedelta(seconds=7.2),
    duration_s=7.2,
    ladder=(
        LadderStep(Rung.ASKED, _THEN, "no"),
        LadderStep(Rung.SIGTERM, _THEN + timedelta(seconds=5), "no"),
        LadderStep(Rung.SIGKILL, _THEN + timedelta(seconds=7), "yes"),
    ),
    processes=Processes(seen=4, killed=3, survivors=0),
)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"state": State.RUNNING}, "running"),
        ({"state": State.STOPPING}, "stopping"),
        ({"result": Result.SUCCEEDED}, "succeeded"),
        ({"result": Result.STOPPED, "reason": Reason.USER}, "stopped"),
        ({"result": Result.LIMIT, "reason": Reason.TIME}, "time limit"),
        ({"result": Result.LIMIT, "reason": Reason.CPU}, "CPU time limit"),
        ({"result": Result.FAILED, "reason": Reason.EXIT, "exit_code": 3}, "failed (exit 3)"),
        ({"result": Result.FAILED, "reason": Reason.SIGNAL, "signal": 11}, "failed (SIGSEGV)"),
        ({"result": Result.FAILED, "reason": Reason.SIGNAL, "signal": 40}, "failed (signal 40)"),
        ({"result": Result.FAILED, "reason": Reason.EXCEPTION}, "failed (exception)"),
        ({"result": Result.LOST, "reason": Reason.SUPERVISOR_DIED}, "lost"),
    ],
)
def test_a_state_is_told_in_words(fields: dict[str, Any], words: str) -> None:
    """Nobody has to decode 137."""
    assert outcome(_report(**fields)) == words


def test_the_table_fits_80_columns_whatever_is_in_it() -> None:
    """Long names, wide characters and control sequences do not break it."""
    hostile = _report(
        name="n" * 63,
        command="漢字 " * 60 + "\x1b[2J\nsecond line",
        result=Result.FAILED,
        reason=Reason.NOT_EXECUTABLE,
    )
    lines = table([hostile, _STOPPED, _report(name=None, state=State.RUNNING)], _NOW_S, 80)

    assert [line.split()[:5] for line in lines[:1]] == [["NAME", "ID", "STATE", "AGE", "COMMAND"]]
    assert len(lines) == 4
    for line in lines:
        assert line.isprintable()
        assert sum(2 if char > "\u2000" else 1 for char in line) <= 80
    assert lines[2].split() == ["demo", "r-abcdefgh", "stopped", "3m", "python", "agent.py"]
    assert lines[3].split()[:3] == ["-", "r-abcdefgh", "running"]


def test_a_row_in_json_has_the_promised_keys() -> None:
    """`ps -o json` is a list of these."""
    assert list(row(_STOPPED, _NOW_S)) == [
        *("id", "name", "state", "result", "reason", "age_s", "command")
    ]
    assert row(_STOPPED, _NOW_S)["age_s"] == 200.0


def test_the_page_tells_why_it_ended_with_the_evidence() -> None:
    """Who stopped it, each rung with its time and answer, and that nothing is left."""
    text = "\n".join(page(_STOPPED, ["working", "\x1b[31mstill\x1b[0m"], _NOW, 80))

    assert "finished: stopped by uid 0 (root)" in text
    assert "asked to end 5.0 s (no) > SIGTERM 2.0 s (no) > SIGKILL 0.2 s (yes)" in text
    assert "4 of 4 processes gone, 3 killed" in text
    assert text.endswith("    working\n    still")


def test_the_page_fits_and_is_harmless_whatever_is_in_it() -> None:
    """Everything that a report can hold is clipped and made plain."""
    evil = "\x1b]0;pwned\x07\n" * 30 + "x" * 3000
    report = _report(
        result=Result.FAILED,
        reason=Reason.EXCEPTION,
        error=evil,
        detail=evil,
        command=evil,
        value={"key": evil},
        partial_text=evil,
        checkpoint=[evil],
        artifacts=(evil,),
        tags={"t": evil},
        layers=(evil,),
        calls=tuple(
            Call(str(number), "tool", evil, "interrupted", error=evil) for number in range(20)
        ),
        usage={evil: UsageTotal(1, 2, "partial")},
        survivor_list=(Survivor(7, evil),),
    )
    for line in page(report, [evil] * 10, _NOW, 80):
        assert line.isprintable()
        assert len(line) <= 80


def test_a_stop_names_what_it_could_not_end() -> None:
    """Survivors are named, never hidden behind a zero."""
    left = _report(
        state=State.STOPPING,
        processes=Processes(seen=3, killed=1, survivors=1),
        survivor_list=(Survivor(4711, "sleep\x1b[2J 60"),),
    )
    assert sentence(StopOutcome(left, gone=False)) == (
        "demo: NOT gone, 2 of 3 processes gone; left: 4711 sleep 60"
    )


def test_a_stop_of_a_finished_run_says_what_became_of_it() -> None:
    """The words are those of the design."""
    done = _report(result=Result.SUCCEEDED, reason=Reason.EXIT)
    assert sentence(StopOutcome(done, already=True)) == "demo: already finished: succeeded"


def test_the_summary_has_result_reason_time_and_evidence() -> None:
    """The one line at the end of `agentctl run`."""
    assert summary(_STOPPED, _NOW) == (
        "demo stopped by uid 0 (root) after 7.2 s, 4 of 4 processes gone"
    )


def test_each_rung_is_told_when_it_is_taken() -> None:
    """A line says what is waited for and for how long, the next one how it was answered."""
    narrator = Narrator("demo")
    began = narrator._since
    lines = [
        narrator.line(step, began + at)
        for step, at in (
            (Step(step=Rung.ASKED, processes=4, left_s=5), 0.0),
            (Step(answered="no"), 5.0),
            (Step(step=Rung.SIGTERM, processes=4, left_s=2), 5.0),
            (Step(answered="no"), 7.0),
            (Step(step=Rung.SIGKILL, processes=1, left_s=10), 7.0),
            (Step(answered="yes"), 7.0),
        )
    ]
    assert [line for line in lines if line] == [
        "demo: asked to end, waiting up to 5.0 s",
        "demo: no answer after 5.0 s; SIGTERM to 4 processes, waiting up to 2.0 s",
        "demo: no answer after 2.0 s; SIGKILL to 1 process",
    ]


def test_an_agent_without_a_channel_is_not_said_to_be_asked() -> None:
    """A program that never said hello cannot answer; the first rung says so."""
    narrator = Narrator("demo")
    steps = (
        Step(step=Rung.ASKED, processes=1, left_s=0),
        Step(answered="no channel"),
        Step(step=Rung.SIGTERM, processes=1, left_s=2),
    )
    lines = [narrator.line(step, narrator._since) for step in steps]
    assert lines == [
        "",
        "",
        "demo: no channel to ask by; SIGTERM to 1 process, waiting up to 2.0 s",
    ]
