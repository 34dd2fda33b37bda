"""A command line that makes no sense: one line, a hint, and exit code 2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentctl_testkit import AgentctlHome, Finished, command_of

_NAME_RULE = "1 to 63 letters"


def _assert_one_error(done: Finished, code: int, error: str, hint: str = "") -> None:
    lines = done.err.splitlines()
    assert done.code == code, done
    assert [line.partition(":")[0] for line in lines] == ["error", "hint"], done.err
    assert error in lines[0]
    assert hint in lines[1]
    assert done.stdout == b""


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["stpo", "x"], "no such command: 'stpo'", "agentctl stop"),
        (["frobnicate"], "no such command", "agentctl help"),
        (["help", "shwo"], "no such command", "agentctl show"),
        (["run"], "nothing to run", "agentctl run -- PROGRAM"),
        (["run", "--"], "no program", "agentctl run -- PROGRAM"),
        (["run", "--nmae", "x", "--", "true"], "'--nmae'", "did you mean --name?"),
        (["run", "--nam", "x", "--", "true"], "'--nam'", "did you mean --name?"),
        (["run", "python", "x.py", "-v"], "'python'", "agentctl run -- python x.py -v"),
        (["run", "x.py"], "'x.py'", "agentctl run x.py:FUNCTION"),
        (["run", "m:f", "extra"], "takes no arguments", "--input"),
        (["run", "m:f", "--", "true"], "cannot both", ""),
        (["run", "m:"], "not a target", "module:function"),
        (["run", "a b:f"], "not a module", "module:function"),
        (["run", "--time", "0", "--", "true"], "--time", "--time none"),
        (["run", "--time", "1x", "--", "true"], "not a duration", "500ms"),
        (["run", "--grace=-1s", "--", "true"], "not a duration", "500ms"),
        (["run", "--term-grace", "", "--", "true"], "not a duration", "500ms"),
        (["run", "--time"], "--time", "agentctl help run"),
        (["run", "--sandbox", "x", "--", "true"], "'x'", "strict or standard or basic or none"),
        (["run", "--sandbox", "stict", "--", "true"], "'stict'", "did you mean strict?"),
        (["run", "--net", "nnoe", "--", "true"], "'nnoe'", "did you mean none?"),
        (["run", "--tag", "x", "--", "true"], "not a tag", "KEY=VALUE"),
        (["run", "--tag", "\n=x", "--", "true"], "not a tag", "KEY=VALUE"),
        (["run", "--name=-x", "--", "true"], "not a run name", _NAME_RULE),
        (["run", "--name", "a\nb", "--", "true"], "not a run name", _NAME_RULE),
        (["run", "--name", "a/b", "--", "true"], "not a run name", _NAME_RULE),
        (["run", "--name", "", "--", "true"], "not a run name", _NAME_RULE),
        (["run", "--name", "x" * 300, "--", "true"], "not a run name", _NAME_RULE),
        (["run", "--name", "r-abcdefgh", "--", "true"], "not a run name", _NAME_RULE),
        (["run", "--input", "{", "m:f"], "not JSON", "--input"),
        (["run", "--input", "[" * 100000, "m:f"], "not JSON", "--input"),
        (["run", "--input", '"\udcff"', "m:f"], "not JSON", "--input"),
        (["run", "--input", "@/nowhere", "m:f"], "'/nowhere'", "@FILE"),
        (["run", "--input", "1", "--", "true"], "input goes with a function", "standard input"),
        (["run", "-i", "--input", "-", "m:f"], "standard input", "@FILE"),
        (["run", "--python", "/bin/x", "--", "true"], "--python", ""),
        (["run", "-o", "xml", "--", "true"], "xml", "agentctl help run"),
        (["stop"], "which run", "agentctl ps"),
        (["kill"], "which run", "agentctl kill --all"),
        (["stop", "--all", "x"], "exclude each other", "agentctl stop --all"),
        (["stop", "--raeson", "x", "y"], "'--raeson'", "did you mean --reason?"),
        (["stop", "x", "--grace", "soon"], "not a duration", "500ms"),
        (["ps", "x"], "unexpected argument: 'x'", "agentctl help ps"),
        (["ps", "--", "x"], "unexpected argument: 'x'", "agentctl help ps"),
        (["show"], "which run", "agentctl ps -a"),
        (["show", "a", "b"], "which run", "agentctl ps -a"),
        (["\x1b[2J"], "no such command", ""),
    ],
)
def test_a_slip_is_answered_by_one_line_and_a_hint(
    home: AgentctlHome, arguments: list[str], error: str, hint: str
) -> None:
    """Nothing is guessed, nothing is started, nothing is written."""
    _assert_one_error(home.run(*arguments), 2, error, hint)
    assert not home.root.exists()


@pytest.mark.parametrize("command", ["stop", "kill", "show"])
@pytest.mark.parametrize("ref", ["nosuch", "-x", "--all", "r-aaaaaaaa", "", "../etc", "a\nb"])
def test_no_such_run_is_4_whatever_it_is_called(home: AgentctlHome, command: str, ref: str) -> None:
    """A name that looks like an option, a path or nothing confuses nobody behind ``--``."""
    done = home.run(command, "--", ref)
    assert done.code == 4, done
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err


@pytest.mark.parametrize("words", [[], ["help"], ["-h"], ["--help"]])
def test_help_is_on_stdout_and_fits_80_columns(home: AgentctlHome, words: list[str]) -> None:
    """Help that was asked for is no error."""
    done = home.run(*words)
    assert (done.code, done.err) == (0, "")
    assert "agentctl stop nightly" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize(
    "command",
    [
        *("run", "stop", "kill", "rerun", "ps", "show", "logs", "events", "wait", "prune"),
        "doctor",
    ],
)
def test_help_for_a_command_is_the_same_by_both_ways(home: AgentctlHome, command: str) -> None:
    """`agentctl help X` is `agentctl X --help`."""
    done = home.run("help", command)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"usage: agentctl {command} ")
    examples = done.out.partition("\nexamples:\n")[2].splitlines()
    assert len(examples) == 3
    assert all("agentctl" in line for line in examples)
    assert max(map(len, done.out.splitlines())) <= 80
    assert home.run(command, "--help").out == home.run(command, "-h").out == done.out


def test_the_version_is_one_line(home: AgentctlHome) -> None:
    """`agentctl --version` prints it on stdout."""
    done = home.run("--version")
    assert (done.code, len(done.out.splitlines())) == (0, 1)


@pytest.mark.parametrize("command", ["stop", "kill"])
def test_all_of_nothing_is_done_at_once(home: AgentctlHome, command: str) -> None:
    """`--all` is no error where nothing runs, and says so."""
    done = home.run(command, "--all")
    assert (done.code, done.out, done.err) == (0, "nothing is running\n", "")
    assert home.run(command, "--all", "-o", "json").json() == {"schema": 1, "runs": []}


def test_ps_of_nothing_is_a_headline_or_an_empty_list(home: AgentctlHome) -> None:
    """Looking creates no state directory."""
    assert home.run("ps").out.split() == ["NAME", "ID", "STATE", "AGE", "COMMAND"]
    assert home.run("ps", "-a", "-o", "json").json() == []
    assert home.run("ps", "-q").out == ""
    assert not home.root.exists()


def test_several_runs_of_which_none_exists_are_all_told(home: AgentctlHome) -> None:
    """One bad name does not hide the others."""
    done = home.run("stop", "-o", "json", "one", "two")
    assert done.code == 4
    assert [entry["run"] for entry in done.json()["runs"]] == ["one", "two"]
    assert all("error" in entry for entry in done.json()["runs"])


@pytest.mark.parametrize("arguments", [["ps"], ["help"], ["stop", "--all"]])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full"])
def test_closed_standard_streams_give_no_traceback(
    home: AgentctlHome, arguments: list[str], closed: str
) -> None:
    """Whoever closed them knows; and a full disk is an error of one line."""
    command = " ".join(home.argv(*arguments))
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {command} {closed}"],
        env=home.environment,
        capture_output=True,
        check=False,
    )
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    assert done.returncode == (125 if closed == ">/dev/full" else 0)


def test_a_reader_that_leaves_ends_the_command_quietly(home: AgentctlHome) -> None:
    """`agentctl ps | true` is no error to be talked about."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        home.argv("help"), env=home.environment, stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("locale", ["C", "POSIX", "en_US.ISO-8859-1", "nonsense"])
def test_any_locale_will_do(home: AgentctlHome, locale: str) -> None:
    """Errors with other than ASCII in them are printed in the C locale, too."""
    done = home.run("show", "größe漢", environment={"LC_ALL": locale, "PYTHONUTF8": "0"})
    assert done.code == 4
    assert b"Traceback" not in done.stderr


def test_without_a_home_directory_the_hint_names_the_variable(tmp_path: Path) -> None:
    """HOME unset is an error only where it is needed, and that error has a hint."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("AGENTCTL_", "XDG_", "HOME"))
    }
    done = subprocess.run(
        [command_of(sys.executable), "ps"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or "AGENTCTL_HOME" in done.stderr


def test_what_nobody_expected_is_one_line_with_the_way_to_the_traceback(tmp_path: Path) -> None:
    """The last line of defence: no traceback, unless it is asked for."""
    code = (
        "import sys; from agentctl_supervisor.cli import arguments, main\n"
        "def broken(argv): raise ZeroDivisionError('boo')\n"
        "arguments.parse = broken\n"
        "sys.exit(main(['ps']))"
    )
    environment = {**os.environ, "AGENTCTL_HOME": str(tmp_path)}
    done, traced = (
        subprocess.run(
            [sys.executable, "-c", code],
            env=environment | debug,
            capture_output=True,
            text=True,
            check=False,
        )
        for debug in ({}, {"AGENTCTL_DEBUG": "1"})
    )
    assert done.returncode == 125
    assert done.stderr.splitlines() == [
        "error: unexpected ZeroDivisionError: boo",
        "hint: AGENTCTL_DEBUG=1 in the environment shows the traceback",
    ]
    assert "Traceback" in traced.stderr
