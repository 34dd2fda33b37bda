"""What a failure is blamed on is what it came from, and what is said to be missing is missing."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentctl_protocol.spec import RunSpec, SpecError
from agentctl_testkit import AgentctlHome


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    directory.mkdir(mode=0o755)
    return directory


def _report(home: AgentctlHome, name: str) -> Any:
    return json.loads(home.run("show", name, "-o", "json").stdout)


def _script(workspace: Path, content: bytes) -> str:
    script = workspace / "script"
    script.write_bytes(content)
    script.chmod(0o755)
    return "./script"


def test_a_carriage_return_in_the_first_line_is_named(home: AgentctlHome, workspace: Path) -> None:
    """Linux takes it for a part of the interpreter's name; /bin/sh is not missing."""
    script = _script(workspace, b"#!/bin/sh\r\necho hi\r\n")
    done = home.run("run", "--", script, cwd=workspace)
    assert done.code == 127
    assert r"carriage return (\r" in done.err
    assert r"sed -i 's/\r$//' ./script" in done.err
    assert "missing" not in done.err


@pytest.mark.parametrize("level", ["strict", "basic"])
def test_an_interpreter_is_said_to_be_missing_for_the_run(
    home: AgentctlHome, workspace: Path, level: str
) -> None:
    """Not as if it were nowhere: a run sees a part of the machine."""
    script = _script(workspace, b"#! \t/opt/nowhere/bin/tool -x\n")
    done = home.run("run", "--sandbox", level, "--", script, cwd=workspace)
    assert done.code == 127
    assert "the run has no /opt/nowhere/bin/tool, its interpreter" in done.err
    assert "--ro DIR" in done.err


def test_a_binary_without_its_loader_is_not_called_a_script(
    home: AgentctlHome, workspace: Path
) -> None:
    """A binary of another C library, as Alpine's on Debian: the kernel says ENOENT of it, too."""
    true = Path("/bin/true").read_bytes()
    start = true.index(b"/lib64/ld-linux-x86-64.so.2\0")
    other = true[:start] + b"/lib64/ld-nobody-x86-64.so.2"[:27] + true[start + 27 :]
    done = home.run("run", "--", _script(workspace, other), cwd=workspace)
    assert done.code == 127
    assert "the dynamic loader that it was linked for is not there" in done.err
    assert "first line" not in done.err


def test_too_few_descriptors_are_not_blamed_on_the_sandbox(
    home: AgentctlHome, workspace: Path
) -> None:
    """A weaker level needs them as well."""
    words = home.argv("run", "--sandbox", "strict", "--", "true")
    done = subprocess.run(
        # Hard and soft: a limit that may be raised is raised.
        ["/bin/sh", "-c", 'ulimit -n 24; exec "$@"', "sh", *words],
        env=home.environment,
        cwd=workspace,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 125
    told = done.stderr.decode()
    assert "ulimit -n" in told
    assert "--sandbox standard" not in told
    assert "Traceback" not in told


def test_a_number_beyond_64_bits_is_a_slip_of_the_command_line(
    home: AgentctlHome, workspace: Path
) -> None:
    """Exit code 2, before anything is started."""
    (workspace / "m.py").write_text("def main(x): return x\n")
    done = home.run("run", "--input", "9" * 30, "m.py:main", cwd=workspace)
    assert done.code == 2
    assert "error: input: not a JSON value" in done.err
    assert "as a string" in done.err


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"argv": "ls -l"}, "argv is one string"),
        ({"argv": [1]}, "RunSpec.argv[0]: Expected `str`, got `int`"),
        ({"argv": 5}, "RunSpec.argv: Expected `array | null`, got `int`"),
        ({"argv": ["x"], "cwd": Path("/")}, "RunSpec.cwd: Expected `str | null`, got `PosixPath`"),
        ({"argv": ["x"], "time_s": "5"}, "RunSpec.time_s: Expected `float | null`, got `str`"),
        ({"argv": ["x"], "env": {"A": 1}}, "RunSpec.env[...]: Expected `str`, got `int`"),
        ({"argv": ["x"], "ro": "/etc"}, "ro is one string"),
        ({"argv": ["x"], "deny": "shell"}, "deny is one string"),
        ({"argv": ["x"], "tags": None}, "RunSpec.tags: Expected `object`, got `null`"),
        ({"argv": ["x"], "sandbox": 5}, "RunSpec.sandbox: Expected `str | null`, got `int`"),
        ({"target": "a:b", "input": object()}, "input: not a JSON value"),
        ({"target": "a:b", "input": 1 << 70}, "input: not a JSON value"),
    ],
)
def test_a_field_of_a_wrong_type_is_named(fields: dict[str, Any], told: str) -> None:
    """A constructor of msgspec takes anything; what is wrong would show far from here."""
    with pytest.raises(SpecError) as caught:
        RunSpec(**fields).checked()
    assert told in str(caught.value)


@pytest.mark.parametrize("how", [(), ("-d",)], ids=["foreground", "detached"])
def test_a_variable_that_names_an_unseen_file_is_told(
    home: AgentctlHome, workspace: Path, tmp_path: Path, how: tuple[str, ...]
) -> None:
    """By the run at its start, by --explain and by show, which does not know its value."""
    unseen = tmp_path / "certificates.pem"
    unseen.write_text("x")
    seen = workspace / "seen"
    seen.write_text("x")
    words = ("--env", f"UNSEEN={unseen}", "--env", f"SEEN={seen}", "--env", "NOT_THERE=/no/such")
    done = home.run(
        "run", *how, "--sandbox", "strict", "--name", "r", *words, "--", "true", cwd=workspace
    )
    assert done.code == 0
    home.run("wait", "r")
    assert f"UNSEEN names {unseen}, which the run does not see" in done.err
    assert 'hint: --ro "$UNSEEN" shows it to the run' in done.err
    assert "SEEN names" not in done.err.replace("UNSEEN names", "")

    explained = home.run(
        "run", "--sandbox", "strict", "--explain", "-o", "json", *words, "--", "true", cwd=workspace
    )
    assert json.loads(explained.out)["unseen"] == [{"path": str(unseen), "why": "named by UNSEEN"}]
    assert _report(home, "r")["unseen_variables"] == ["UNSEEN"]
    assert str(unseen) not in json.dumps(_report(home, "r"))

    shown = home.run(
        "run",
        "--sandbox",
        "strict",
        "--ro",
        str(unseen),
        *words,
        "--",
        "cat",
        str(unseen),
        cwd=workspace,
    )
    assert (shown.out, shown.err) == ("x", "")


def test_a_failure_at_a_protected_name_points_to_the_way_out(
    home: AgentctlHome, workspace: Path
) -> None:
    """Git says busy of .git/config, and leaves what it was doing half done."""
    for words in (
        ("init", "-q", "-b", "main"),
        ("config", "user.name", "a"),
        ("config", "user.email", "a@b"),
        ("commit", "-q", "--allow-empty", "-m", "1"),
        ("branch", "old"),
        ("config", "branch.old.description", "d"),
    ):
        subprocess.run(["git", *words], cwd=workspace, check=True)
    move = ("git", "branch", "-m", "old", "new")
    done = home.run("run", "--sandbox", "strict", "--", *move, cwd=workspace)
    assert done.code != 0
    assert "hint: .git/config is protected, so the run could not change it" in done.err
    assert "--unprotect .git/config lets it" in done.err
