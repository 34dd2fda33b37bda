"""`agentctl run` at a terminal: what is seen, what keys do, and that the terminal survives it."""

import os
import re
import select
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from agentctl_testkit import MARKER_VARIABLE, AgentctlHome, alive
from agentctl_testkit.cli import SLEEPER, STUBBORN
from agentctl_testkit.pty import CTRL_C, CTRL_D, CTRL_Z, Terminal

_STATUS = re.compile(rb"\x1b\[2m(demo  [^\x1b]*)\x1b\[0m\x1b\[K\r")
_FAINT = b"\x1b[2m"


class OnTerminal(Protocol):
    """Starts ``agentctl run`` on a terminal."""

    def __call__(
        self,
        *arguments: str,
        program: Sequence[str],
        columns: int = 80,
        environment: Mapping[str, str] | None = None,
    ) -> Terminal: ...


@pytest.fixture
def run(home: AgentctlHome, marker: str) -> Iterator[OnTerminal]:
    """``agentctl run --name demo ARGUMENTS -- PROGRAM`` on a terminal."""
    with ExitStack() as stack:

        def start(
            *arguments: str,
            program: Sequence[str],
            columns: int = 80,
            environment: Mapping[str, str] | None = None,
        ) -> Terminal:
            argv = home.argv("run", "--name", "demo", *arguments, "--", *program)
            marked = {**home.environment, MARKER_VARIABLE: marker, **(environment or {})}
            return stack.enter_context(Terminal(argv, marked, columns=columns))

        yield start


def _sh(script: str) -> list[str]:
    return ["sh", "-c", script]


def _statuses(terminal: Terminal) -> list[str]:
    return [line.decode() for line in _STATUS.findall(terminal.transcript)]


def _wait_for_status(terminal: Terminal, word: str = "memory") -> str:
    terminal.wait_until(
        lambda: any(word in line for line in _statuses(terminal)), f"status with {word!r}"
    )
    return next(line for line in reversed(_statuses(terminal)) if word in line)


def test_the_status_line_shows_what_the_run_takes(run: OnTerminal, tmp_path: Path) -> None:
    """Time, processes, processor, memory; at most four a second, and none of it stays."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o666)
    began = time.monotonic()
    terminal = run(
        *("--time", "50s"), program=_sh(f"echo one; sleep 60 & read go <{fifo}; echo two")
    )
    line = _wait_for_status(terminal, "cpu")
    assert re.fullmatch(
        r"demo  \d+ s left  2 processes  cpu \d+%  memory [\d.]+ \wi?B  Ctrl-C stops it", line
    ), line
    fifo.write_text("on\n")
    assert terminal.finish() == 0
    # One more may have been drawn anew behind the last output.
    assert len(_statuses(terminal)) <= 4 * (time.monotonic() - began) + 1
    last = terminal.shown.lines()
    assert last[:2] == ["one", "two"]
    assert re.fullmatch(r"agentctl: demo succeeded after [\d.]+ s.*; agentctl show demo", last[2])
    assert len(last) == 3
    assert terminal.shown.is_as_new()


def test_a_prompt_is_not_overwritten(run: OnTerminal) -> None:
    """While the cursor stands behind a text of the run, there is no status line."""
    terminal = run(program=_sh("printf 'working on it '; sleep 1; printf '... done\\n'"))
    terminal.wait_for("it ")
    assert _FAINT not in terminal.read_for(0.7)
    assert terminal.finish() == 0
    assert terminal.shown.lines()[0] == "working on it ... done"
    assert terminal.shown.is_as_new()


def test_a_resized_terminal_gets_a_line_that_fits(run: OnTerminal) -> None:
    """The line is never as wide as the terminal, and never broken in two."""
    terminal = run(program=_sh(SLEEPER), columns=120)
    assert len(_wait_for_status(terminal)) < 120
    for columns in (40, 20):
        terminal.resize(columns)
        terminal.read_for(0.3)
        begin = len(_statuses(terminal))
        terminal.wait_until(lambda: len(_statuses(terminal)) > begin, "line")  # noqa: B023
        assert all(len(line) < columns for line in _statuses(terminal)[begin:])
    assert terminal.shown.wraps == 0
    terminal.type(CTRL_C)
    assert terminal.finish() == 130


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [(["-q"], {}), ([], {"TERM": "dumb"}), ([], {"NO_COLOR": "1"})],
    ids=["quiet", "dumb terminal", "no colour"],
)
def test_what_is_not_wanted_is_not_sent(
    run: OnTerminal, arguments: list[str], environment: dict[str, str]
) -> None:
    """No line of ours with ``-q``, no cursor movements where there are none, no colours."""
    terminal = run(*arguments, program=_sh("echo out; sleep 0.5"), environment=environment)
    assert terminal.finish() == 0
    assert not re.search(rb"\x1b\[[\d;]*m", terminal.transcript)
    if "NO_COLOR" not in environment:
        assert b"\x1b" not in terminal.transcript
    if arguments:
        assert terminal.transcript == b"out\r\n"


def test_colours_can_be_forced_through_a_pipe(home: AgentctlHome) -> None:
    """``FORCE_COLOR`` colours what is ours; ``NO_COLOR`` comes first."""
    forced = home.run("stop", environment={"FORCE_COLOR": "1"})
    assert forced.err.startswith("\x1b[31merror:\x1b[0m ")
    both = home.run("stop", environment={"FORCE_COLOR": "1", "NO_COLOR": "1"})
    assert both.err.startswith("error: ")


def test_one_ctrl_c_stops_it_and_two_kill_it(run: OnTerminal, marker: str) -> None:
    """The ladder is told as it is climbed, the last line has the evidence, the code is 130."""
    terminal = run("--term-grace", "1h", program=_sh(STUBBORN))
    terminal.wait_for("up")
    _wait_for_status(terminal)
    terminal.type(CTRL_C)
    terminal.wait_for("demo: no channel to ask by; SIGTERM to ")
    line = _wait_for_status(terminal, "SIGTERM")
    assert re.match(r"demo  SIGTERM, (1h|59m 59s|60m) left  \d process", line), line
    assert alive(marker)
    terminal.type(CTRL_C)
    assert terminal.finish() == 130
    *_, end, hint = terminal.shown.lines()
    assert "; SIGKILL to " in " ".join(terminal.shown.lines())
    assert end.startswith("agentctl: demo stopped from its terminal after ")
    assert end.endswith(" gone")
    assert hint == "  agentctl show demo"
    assert terminal.shown.is_as_new()


def test_a_stop_names_who_gets_the_signal(run: OnTerminal) -> None:
    """By their command lines, without control sequences, equal ones counted."""
    code = "trap '' TERM; echo up; sleep 61 & sleep 61 & exec sh -c 'trap \"\" TERM; sleep 62'"
    terminal = run("--term-grace", "300ms", program=["sh", "-c", code, "a\x1b]0;b\x07"])
    _wait_for_status(terminal, "cpu")
    terminal.type(CTRL_C)
    assert terminal.finish() == 130
    text = "\n".join(terminal.shown.lines())
    assert "SIGTERM to 4 processes" in text
    assert "sleep 61 (2)" in text
    assert b"\x1b]" not in terminal.transcript


def test_ctrl_z_stops_us_but_not_the_run(home: AgentctlHome, marker: str, tmp_path: Path) -> None:
    """The run goes on, its time limit holds, and the shell's ``fg`` continues us."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o666)
    environment = {
        **home.environment,
        MARKER_VARIABLE: marker,
        "PS1": "ready> ",
        "HISTFILE": "",
        "INPUTRC": "/dev/null",
    }
    shell = ["bash", "--norc", "--noprofile", "--noediting", "-i"]
    command = " ".join(home.argv("run", "--name", "demo", "--time", "30s", "--"))
    with Terminal(shell, environment) as terminal:
        terminal.wait_for("ready> ")
        terminal.type(f"{command} sh -c 'echo up; read go <{fifo}; echo heard $go'\n".encode())
        terminal.wait_for("\r\nup\r\n")
        _wait_for_status(terminal)
        terminal.type(CTRL_Z)
        terminal.wait_for("Stopped")
        terminal.wait_for("ready> ")
        assert terminal.shown.line == "ready>"
        assert _FAINT not in terminal.read_for(0.5)
        # The reader is the run, and nobody else could let this end.
        with fifo.open("w") as write:
            write.write("me\n")
        terminal.type(b"fg\n")
        terminal.wait_for("heard me")
        terminal.wait_for("demo succeeded")
        terminal.type(b"exit $?\n")
        assert terminal.finish() == 0


def test_a_time_limit_holds_while_we_are_stopped(run: OnTerminal, marker: str) -> None:
    """The keepers are no part of the terminal's job."""
    limits = ("--time", "1s", "--grace", "0", "--term-grace", "100ms")
    terminal = run(*limits, program=_sh(STUBBORN))
    terminal.wait_for("up")
    agents = [
        os.pidfd_open(process.pid)
        for process in alive(marker)
        if process.command.startswith("sh -c trap")
    ]
    # What Ctrl-Z does where a shell is there to continue us.
    terminal.process.send_signal(signal.SIGSTOP)
    # Two where the shell has just forked, and its child has not executed anything yet.
    assert agents
    for agent in agents:
        assert select.select([agent], [], [], 10)[0]
        os.close(agent)
    terminal.process.send_signal(signal.SIGCONT)
    assert terminal.finish() == 124


def test_the_end_of_the_terminal_is_the_end_of_the_run(
    home: AgentctlHome, run: OnTerminal, marker: str
) -> None:
    """A window that is closed leaves nothing behind; the report says why."""
    terminal = run("--term-grace", "100ms", program=_sh(STUBBORN))
    terminal.wait_for("up")
    terminal.hang_up()
    assert terminal.process.wait(timeout=20) == 137
    assert not alive(marker)
    report = home.run("show", "demo", "-o", "json").json()
    assert (report["result"], report["reason"]) == ("stopped", "supervisor_exit")
    assert "SIGHUP" in report["detail"]


def test_nohup_is_obeyed(home: AgentctlHome, marker: str) -> None:
    """Who was told to ignore the end of the terminal goes on, and so does the run."""
    read, write = os.pipe()
    argv = ["nohup", *home.argv("run", "--", *_sh("echo up; sleep 0.5; echo still"))]
    environment = {**home.environment, MARKER_VARIABLE: marker}
    with Terminal(argv, environment, stdout=write, stderr=write) as terminal, open(read) as said:
        os.close(write)
        assert "up\n" in iter(said.readline, "")
        terminal.hang_up()
        assert said.readline() == "still\n"
        assert terminal.process.wait(timeout=20) == 0


def test_what_is_typed_reaches_the_run(run: OnTerminal) -> None:
    """With ``-i`` the terminal is the run's: no status line; Ctrl-D ends its input."""
    terminal = run("-i", program=["cat"])
    terminal.type(b"hello\n")
    terminal.wait_for("hello\r\nhello\r\n")
    assert _FAINT not in terminal.read_for(0.6)
    terminal.type(CTRL_D)
    assert terminal.finish() == 0
    assert terminal.shown.lines()[:2] == ["hello", "hello"]


def test_a_full_screen_program_that_is_stopped_leaves_the_terminal_usable(run: OnTerminal) -> None:
    """Its bytes pass unchanged; the alternate screen, hidden cursor and mouse do not stay."""
    draw = rb"before\r\n\033[?1049h\033[?25l\033[?1006h\033[2J\033[5;5H\033[1;31mred"
    terminal = run(program=_sh(f"printf '{draw.decode()}'; exec sleep 60"))
    drawn = draw.replace(rb"\033", b"\x1b").replace(rb"\r\n", b"\r\r\n")
    terminal.wait_until(lambda: drawn in terminal.transcript, "drawing")
    assert not terminal.shown.is_as_new()
    assert _FAINT not in terminal.read_for(0.6)
    terminal.type(CTRL_C)
    assert terminal.finish() == 130
    assert terminal.shown.is_as_new()
    assert terminal.shown.lines()[0] == "before"
    assert "agentctl: demo stopped from its terminal" in "\n".join(terminal.shown.lines())


def test_only_stderr_decides_about_the_status_line(
    home: AgentctlHome, tmp_path: Path, marker: str
) -> None:
    """Output into a file and a terminal for us: a status line, and the file has only output."""
    with (tmp_path / "out").open("w+b") as file:
        argv = home.argv("run", "--name", "demo", "--", *_sh("printf 'data\\n'; sleep 0.6"))
        environment = {**home.environment, MARKER_VARIABLE: marker}
        with Terminal(argv, environment, stdout=file.fileno()) as terminal:
            _wait_for_status(terminal)
            assert terminal.finish() == 0
        with Terminal(argv, environment, stderr=file.fileno()) as terminal:
            assert terminal.finish() == 0
            assert terminal.transcript == b"data\r\n"
    assert (tmp_path / "out").read_bytes() == b"data\n"
