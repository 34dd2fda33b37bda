"""`agentctl run`: what goes in comes out, and how it ends is how it ended."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_testkit import MARKER_VARIABLE, AgentctlHome, alive
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.cli import SLEEPER, STUBBORN, Foregrounds, end_of

_KEYS = [
    *("schema", "id", "name", "tags", "state", "result", "reason", "detail", "actor", "value"),
    *("exit_code", "signal", "started_at", "ended_at", "duration_s", "ladder", "processes"),
    *("survivor_list", "calls", "usage", "partial_text", "checkpoint", "sandbox", "layers"),
    *("limits", "log"),
]


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


@pytest.fixture
def runs(home: AgentctlHome, marker: str) -> Iterator[Foregrounds]:
    """Runs of this test."""
    with Foregrounds(home, marker) as foregrounds:
        yield foregrounds


def test_output_passes_byte_for_byte(home: AgentctlHome) -> None:
    """Every byte value, no newline at the end, each stream on its own."""
    code = (
        "import sys; every = bytes(range(256));"
        "sys.stdout.buffer.write(every * 3000); sys.stderr.buffer.write(every[::-1])"
    )
    done = home.run("run", "--", *_python(code))
    assert done.stdout == bytes(range(256)) * 3000
    assert done.stderr == bytes(range(256))[::-1]
    assert done.code == 0


@pytest.mark.parametrize("code", [0, 1, 3, 125, 130, 255])
def test_the_exit_code_is_the_programs_own(home: AgentctlHome, code: int) -> None:
    """Whatever it means to us, it is passed on."""
    assert home.run("run", "-q", "--", "sh", "-c", f"exit {code}").code == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_signal_is_128_and_its_number(home: AgentctlHome, number: signal.Signals) -> None:
    """As shells have it; the summary has the name."""
    done = home.run("run", "--", "sh", "-c", f"kill -{int(number)} $$")
    assert done.code == 128 + number
    assert f"failed ({number.name})" in done.err


def test_arguments_reach_the_program_exactly(home: AgentctlHome) -> None:
    """Bytes that are no UTF-8, empty words, options and a second ``--`` are the program's."""
    words = [b"\xff\xfe", b"", b"--name", b"--", b"-o", b"gr\xc3\xb6\xc3\x9fe", b"a\nb"]
    echo = "import os, sys; sys.stdout.buffer.write(b'|'.join(map(os.fsencode, sys.argv[1:])))"
    for locale in ("C", "C.UTF-8"):
        done = subprocess.run(
            [*map(os.fsencode, home.argv("run", "--", *_python(echo))), *words],
            env=home.environment | {"LC_ALL": locale},
            capture_output=True,
            check=False,
        )
        assert (done.stdout, done.stderr) == (b"|".join(words), b"")


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (["/nowhere/to/be/found"], 127),
        (["no-such-program-anywhere"], 127),
        (["/etc/passwd"], 126),
        (["/"], 126),
    ],
    ids=["no file", "not on PATH", "no program", "a directory"],
)
def test_a_program_that_cannot_be_executed_is_one_error(
    home: AgentctlHome, program: list[str], code: int
) -> None:
    """As shells and docker have it, with one line and a hint."""
    done = home.run("run", "--", *program)
    assert done.code == code, done.err[:500]
    assert [line.partition(":")[0] for line in done.err.splitlines()] == ["error", "hint"]


@needs(Capability.ORDINARY_USER)
def test_a_directory_of_the_search_path_that_nobody_may_look_into_is_passed_over(
    home: AgentctlHome, tmp_path: Path
) -> None:
    """A program that is nowhere else is not found, and not forbidden: 127, as in shells."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    path = f"{closed}:/usr/bin:/bin"
    done = home.run("run", "--", "no-such-program-anywhere", environment={"PATH": path})
    assert done.code == 127, done.err
    assert home.run("run", "-q", "--", "true", environment={"PATH": path}).code == 0


def test_standard_input_is_null_unless_it_is_asked_for(home: AgentctlHome) -> None:
    """An agent does not read what was meant for somebody else."""
    assert home.run("run", "--", "cat", input=b"secret").stdout == b""
    assert home.run("run", "-i", "--", "cat", input=b"\0for you").stdout == b"\0for you"
    big = os.urandom(3 << 20)
    assert home.run("run", "-i", "--", "cat", input=big).stdout == big


def test_a_functions_value_is_printed_as_json(home: AgentctlHome, tmp_path: Path) -> None:
    """Nothing is printed for a function without a return statement."""
    (tmp_path / "agent.py").write_text(
        "def echo(value): return {'got': value}\ndef silent(value): pass\n"
    )
    done = home.run("run", f"{tmp_path}/agent.py:echo", "--input", '{"a": [1, "ü"]}')
    assert (done.code, done.json(), done.err) == (0, {"got": {"a": [1, "ü"]}}, "")
    assert home.run("run", "--input", "-", f"{tmp_path}/agent.py:echo", input=b"7").json() == {
        "got": 7
    }
    (tmp_path / "in.json").write_text("[1]")
    done = home.run("run", "--input", f"@{tmp_path}/in.json", f"{tmp_path}/agent.py:echo")
    assert done.json() == {"got": [1]}
    assert home.run("run", f"{tmp_path}/agent.py:silent").stdout == b""


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("no_such_module_anywhere:f", 127, "no_such_module_anywhere"),
        ("json:no_such_function", 127, "no_such_function"),
        ("{tmp}/nofile.py:f", 127, "nofile.py"),
        ("{tmp}/broken.py:f", 1, "ZeroDivisionError"),
        ("{tmp}/syntax.py:f", 1, "SyntaxError"),
        ("{tmp}/wants.py:f", 1, "no_such_module_anywhere"),
    ],
)
def test_a_function_that_cannot_be_loaded_is_told_in_a_line(
    home: AgentctlHome, tmp_path: Path, target: str, code: int, said: str
) -> None:
    """What was wrong, without our traceback; a target that is not there is not found."""
    (tmp_path / "wants.py").write_text("import no_such_module_anywhere\n")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "syntax.py").write_text("def f(:\n")
    done = home.run("run", target.format(tmp=tmp_path))
    assert done.code == code
    assert said in done.err
    assert len(done.err.splitlines()) == (2 if code == 127 else 1)
    assert "agentctl_" not in done.err


def test_a_report_in_json_is_all_that_is_on_stdout(home: AgentctlHome) -> None:
    """With ``-o json`` the program's own output goes to stderr; the keys are the promised ones."""
    done = home.run("run", "-o", "json", "--tag", "a=b", "--", "sh", "-c", "echo out; exit 3")
    report = done.json()
    assert done.code == 3
    assert done.err.startswith("out\n")
    assert [key for key in report if key in _KEYS] == _KEYS
    assert (report["schema"], report["exit_code"], report["tags"]) == (1, 3, {"a": "b"})


def test_a_run_that_failed_is_summed_up_unless_quiet(home: AgentctlHome) -> None:
    """One line: result, time, evidence, and how to learn more."""
    done = home.run("run", "--name", "demo", "--", "sh", "-c", "exit 3")
    assert len(done.err.splitlines()) == 1
    assert done.err.startswith("agentctl: demo failed (exit 3) after ")
    assert done.err.endswith("; agentctl show demo\n")
    assert home.run("run", "-q", "--", "false").err == ""


def test_the_time_limit_ends_it_with_124(home: AgentctlHome, marker: str) -> None:
    """A program that ignores everything is gone at time + graces."""
    done = home.run(
        *("run", "--time", "200ms", "--grace", "100ms", "--term-grace", "100ms"),
        *("--", "sh", "-c", STUBBORN),
        environment={MARKER_VARIABLE: marker},
    )
    assert done.code == 124
    assert "time limit" in done.err.splitlines()[-1]
    assert not alive(marker)


def test_a_second_live_run_of_one_name_is_refused(home: AgentctlHome, runs: Foregrounds) -> None:
    """The name stays with the run that has it."""
    first = runs.up(STUBBORN, "--name", "demo")
    done = home.run("run", "--name", "demo", "--", "true")
    assert done.code == 125
    assert [line.partition(":")[0] for line in done.err.splitlines()] == ["error", "hint"]
    assert home.run("kill", "demo").code == 0
    assert end_of(first)[0] == 137


def test_ctrl_c_stops_it(runs: Foregrounds) -> None:
    """One Ctrl-C: the ladder, told on stderr, and 130."""
    process = runs.up(SLEEPER)
    process.send_signal(signal.SIGINT)
    code, err = end_of(process)
    assert code == 130
    assert "SIGTERM to" in err
    assert "stopped from its terminal" in err.splitlines()[-1]
    assert runs.left() == []


def test_a_second_ctrl_c_kills_it_now(runs: Foregrounds) -> None:
    """Who presses twice does not wait for a grace."""
    process = runs.up(STUBBORN, "--term-grace", "1h")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert b"SIGTERM" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    code, err = end_of(process)
    assert code == 130
    assert "SIGKILL" in err
    assert runs.left() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_it_stops_the_run(
    home: AgentctlHome, runs: Foregrounds, number: signal.Signals
) -> None:
    """The run does not outlive who holds it, and gets its graces."""
    process = runs.up(SLEEPER, "--name", "demo")
    process.send_signal(number)
    assert end_of(process)[0] == 143
    report = home.run("show", "demo", "-o", "json").json()
    assert (report["result"], report["reason"]) == ("stopped", "supervisor_exit")
    assert number.name in report["detail"]
    assert runs.left() == []


def test_a_reader_that_leaves_ends_the_run(runs: Foregrounds) -> None:
    """`agentctl run -- yes | head -1` ends, as `yes | head -1` does."""
    read, write = os.pipe()
    process = runs.start("--", "yes", stdout=write)
    os.close(write)
    assert os.read(read, 2) == b"y\n"
    os.close(read)
    assert end_of(process)[0] == 128 + signal.SIGPIPE
    assert runs.left() == []


def test_a_reader_that_does_not_read_holds_up_no_stop(runs: Foregrounds) -> None:
    """Backpressure reaches the run; a stop does not wait for the reader."""
    process = runs.start("--name", "demo", "--", "sh", "-c", "yes & wait")
    assert process.stdout is not None
    assert process.stdout.read(2) == b"y\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 143
    assert runs.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("cwd", "level"),
    [
        (None, "basic"),
        pytest.param("/", "strict", marks=needs(Capability.PID_NAMESPACE)),
    ],
)
def test_a_reader_of_our_words_who_does_not_read_holds_up_no_stop(
    runs: Foregrounds, number: signal.Signals, cwd: str | None, level: str
) -> None:
    """The rungs cannot be told to a stderr that is full, nor that the workspace is a fresh one.

    Still the command ends.
    """
    read, write = os.pipe()
    size = fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
    os.write(write, b"x" * size)
    process = runs.start("--sandbox", level, "--", "sh", "-c", SLEEPER, stderr=write, cwd=cwd)
    os.close(write)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(number)
    assert process.wait(timeout=20) == 128 + number
    assert runs.left() == []
    os.close(read)


def test_a_full_disk_behind_stdout_is_told_and_ends_the_run(runs: Foregrounds) -> None:
    """The program learns that nobody takes its output; the person learns why."""
    with open("/dev/full", "wb") as full:
        process = runs.start("--", "yes", stdout=full)
    code, err = end_of(process)
    assert code == 128 + signal.SIGPIPE
    assert "error: stdout: No space left on device" in err


def test_the_environment_is_passed_and_not_stored(home: AgentctlHome, tmp_path: Path) -> None:
    """A secret in a variable reaches the agent and no file."""
    done = home.run(
        "run", "--", "sh", "-c", "echo $S3CRET | wc -c", environment={"S3CRET": "hunter2-hunter2"}
    )
    assert done.stdout == b"16\n"
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"hunter2" not in stored


def test_show_has_the_last_lines_of_output(home: AgentctlHome) -> None:
    """What it said last is on the page, without its control sequences."""
    home.run("run", "--name", "demo", "--", "printf", r"one\n\033[31mtwo\033[0m\n")
    page = home.run("show", "demo").out
    assert "finished: succeeded" in page
    assert page.endswith("  last output\n    one\n    two\n")
    assert json.loads(home.run("show", "demo", "-o", "json").stdout)["result"] == "succeeded"
