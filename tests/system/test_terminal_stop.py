"""`agentctl stop` while it waits: what for, how long, for whom, and what would be quicker."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from agentctl_protocol.control import Step
from agentctl_protocol.report import LadderStep, Report
from agentctl_protocol.vocabulary import Rung, State
from agentctl_supervisor.cli.commands.typical_stop_time import hint_after
from agentctl_supervisor.cli.terminal.remaining_processes import Onlooker, names
from agentctl_supervisor.cli.terminal.status_line import clock, fitting, waiting
from agentctl_supervisor.cli.wording.narration import Narrator
from agentctl_testkit import AgentctlHome
from agentctl_testkit.cli import Foregrounds
from agentctl_testkit.pty import CTRL_C, Terminal

_TWO = "trap '' TERM; sleep 61 & echo up; while :; do wait; done"
_THEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def runs(home: AgentctlHome, marker: str) -> Iterator[Foregrounds]:
    """Runs of this test."""
    with Foregrounds(home, marker) as foregrounds:
        yield foregrounds


def test_a_terminal_counts_down_and_a_habit_is_told(home: AgentctlHome, runs: Foregrounds) -> None:
    """Phase, seconds left and names; the second stop that needed SIGKILL tells how to save time."""
    first = runs.up(_TWO, "--name", "demo", "--term-grace", "1.5s")
    with Terminal(home.argv("stop", "demo"), home.environment) as terminal:
        assert terminal.finish() == 0
    first.communicate()
    shown = re.findall(
        rb"\x1b\[2m(demo  SIGTERM, [01]\.\d s left  [^\x1b]*)\x1b\[0m\x1b\[K\r", terminal.transcript
    )
    assert 1 <= len(shown) <= 6
    assert any(b"sleep 61" in line and b"sh -c trap" in line for line in shown)
    lines = terminal.shown.lines()
    assert lines[0].startswith(
        "demo: no channel to ask by; SIGTERM to 2 processes, waiting up to 1.5 s"
    )
    assert lines[-1].startswith("demo: stopped by uid ")
    assert lines[-1].endswith("s, 2 of 2 processes gone")
    assert terminal.shown.is_as_new()

    second = runs.up(_TWO, "--name", "demo", "--term-grace", "300ms")
    done = home.run("stop", "demo")
    second.communicate()
    # Whoever looks too late, on a slow machine, names nobody rather than somebody else.
    named = [line for line in done.err.splitlines() if line.startswith("  ")]
    assert all("sleep 61" in line for line in named)
    sigterm, sigkill, hint = (line for line in done.err.splitlines() if line not in named)
    assert sigterm.startswith("demo: no channel to ask by; SIGTERM to 2 processes, ")
    assert sigkill.startswith("demo: no answer after 0.")
    assert "; SIGKILL to 2 processes" in sigkill
    assert re.fullmatch(
        r"hint: its last 2 stops all needed SIGKILL; agentctl kill saves 1\.\d s",
        hint,
    )


def test_ctrl_c_leaves_the_stop_to_the_supervisor(home: AgentctlHome, runs: Foregrounds) -> None:
    """The status line is taken away, and it is said that the stop goes on."""
    process = runs.up(_TWO, "--name", "demo", "--term-grace", "1s")
    with Terminal(home.argv("stop", "demo"), home.environment) as terminal:
        terminal.wait_for(" s left  2 processes")
        terminal.type(CTRL_C)
        assert terminal.finish() == 130
    assert "left before the end; agentctl ps -a" in terminal.shown.lines()[-1]
    assert terminal.shown.is_as_new()
    process.communicate()
    assert process.returncode == 137


def _stop(*rungs: Rung, seconds: float = 7.0) -> Report:
    steps = [
        LadderStep(rung, _THEN + timedelta(seconds=number * seconds / max(len(rungs) - 1, 1)))
        for number, rung in enumerate(rungs)
    ]
    return Report(id="r-abcdefgh", state=State.FINISHED, created_at=_THEN, ladder=tuple(steps))


_KILLED = _stop(Rung.ASKED, Rung.SIGTERM, Rung.SIGKILL)
_OBEYED = _stop(Rung.ASKED)


@pytest.mark.parametrize(
    ("stops", "told"),
    [
        ([_KILLED], False),
        ([_KILLED, _KILLED], True),
        ([_KILLED, _KILLED, _OBEYED], False),
        ([_KILLED, _stop(Rung.ASKED, Rung.SIGTERM)], False),
        ([_OBEYED, _OBEYED], False),
    ],
    ids=["once", "always", "has obeyed", "has heeded SIGTERM", "never"],
)
def test_only_what_never_worked_is_advised_against(stops: list[Report], told: bool) -> None:
    """An agent that has once ended when told to may do so again."""
    hint = hint_after(stops)
    assert bool(hint) == told
    assert not told or ("last 2 stops" in hint and "7.0 s" in hint)


@pytest.mark.parametrize("columns", [1, 10, 20, 40, 79, 80, 81, 200])
def test_a_status_line_is_narrower_than_its_terminal(columns: int) -> None:
    """Whatever the names and commands, and however narrow."""
    narrator = Narrator("漢字" * 30)
    narrator.line(Step(step=Rung.SIGTERM, processes=3, left_s=12), 100.0)
    onlooker = Onlooker(list)
    onlooker.commands, onlooker.count = ("漢字 " * 20, "sleep 60", "sleep 60"), 3
    for line in (
        waiting([(narrator, onlooker)], columns, 101.0, "Ctrl-C kills it"),
        fitting("demo", ["3 s", "3 processes", "cpu 100%"], columns),
    ):
        assert sum(2 if char > "\u2000" else 1 for char in line) < max(columns, 1)


@pytest.mark.parametrize(
    ("commands", "columns", "shown"),
    [
        ([], 80, ""),
        (["python agent.py"], 80, "python agent.py"),
        (["sleep 60", "sh", "sleep 60"], 80, "sleep 60 (2), sh"),
        (["x" * 300, "sh"], 50, "x" * 29 + "..., sh"),
        ([f"program number {n}" for n in range(20)], 40, "program n..., program n... and 18 more"),
        (["sh"], 5, ""),
    ],
)
def test_names_are_counted_and_cut(commands: list[str], columns: int, shown: str) -> None:
    """Equal ones once, with their number; as many as fit, and how many more there are."""
    assert names(commands, columns) == shown


@pytest.mark.parametrize(
    ("elapsed_s", "limit_s", "shown"),
    [
        (0.0, None, "0 s"),
        (59.9, None, "59 s"),
        (61.0, None, "1m 1s"),
        (0.1, 60.0, "1m left"),
        (59.2, 60.0, "1 s left"),
        (61.0, 60.0, "0 s left"),
    ],
)
def test_the_clock_counts_down_to_a_limit(
    elapsed_s: float, limit_s: float | None, shown: str
) -> None:
    """And up where there is none."""
    assert clock(elapsed_s, limit_s) == shown
