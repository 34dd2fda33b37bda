"""Directories, files, arguments and variables whose names are not UTF-8, wherever they appear."""

import io
import json
import os
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from agentctl_protocol.os_names import to_bytes, to_text
from agentctl_supervisor import RunSpec, SpecError, Supervisor
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AgentctlHome
from agentctl_testkit.sandbox import Sandboxed

ODD = os.fsdecode(b"jos\xe9")

AGENT = """
import os
from agentctl_child import run

def main():
    name = os.fsdecode(b"made\\xff")
    open(name, "w").close()
    run.artifact(name)
    return os.fsencode(os.getcwd()).hex()
"""


@pytest.fixture
def caller(caller: Sandboxed) -> Sandboxed:
    caller.home.environment["AGENTCTL_SANDBOX"] = "strict"
    return caller


def odd_workspace(caller: Sandboxed) -> Path:
    return caller.make(f"workspace/{ODD}")


def shown(caller: Sandboxed, run: str = "x") -> Any:
    return caller.run("show", run, "-o", "json").json()


@pytest.mark.parametrize("way", ["here", "-d", "--python"])
def test_a_function_in_such_a_directory_runs(caller: Sandboxed, way: str) -> None:
    """In a forked process, under a detached supervisor, or in another interpreter."""
    work = odd_workspace(caller)
    caller.make(f"workspace/{ODD}/m.py", AGENT)
    options = {"here": (), "-d": ("-d",), "--python": ("--python", sys.executable)}[way]
    done = caller.run("run", "-q", *options, "--name", "x", "m.py:main", cwd=work)
    assert done.code == 0, done.err
    caller.run("wait", "x")
    report = shown(caller)
    assert bytes.fromhex(report["value"]) == os.fsencode(work)
    assert report["artifacts"] == ["made\0ff"]


def test_the_report_sees_such_a_workspace(caller: Sandboxed) -> None:
    """What was made there, by names that lead to it; people see the bytes."""
    work = odd_workspace(caller)
    script = "mkdir -p .git/hooks; echo x > .git/hooks/post-merge; echo y > \"$(printf 'a\\377')\""
    done = caller.run("run", "-q", "--name", "x", "--", "sh", "-c", script, cwd=work)
    assert done.code == 0, done.err
    told = shown(caller)["workspace"]
    assert to_bytes(told["path"]) == os.fsencode(work)
    assert told["exposed"] == [".git/hooks"]
    assert {"a\0ff", ".git/hooks/"} <= set(told["changed"])
    assert told["incomplete"] == ""
    page = caller.run("show", "x").out
    assert "jos\\xe9" in page
    assert "a\\xff" in page


def test_a_path_beside_the_workspace_may_be_called_so(caller: Sandboxed) -> None:
    """--ro, --rw and --workspace; the next run of the same spec has them again."""
    extra = caller.make(f"more{ODD}")
    caller.make(f"seen{ODD}", "text")
    options = (*("--rw", f"../more{ODD}", "--ro", f"../seen{ODD}"), *("--name", "x"))
    script = 'cat "$0" && touch "$1/made"'
    words = (script, f"../seen{ODD}", f"../more{ODD}")
    done = caller.run("run", "-q", *options, "--", "sh", "-c", *words)
    assert (done.code, done.out) == (0, "text"), done.err
    assert f"{to_text(str(extra))}/made" in shown(caller)["workspace"]["changed"]
    os.unlink(extra / "made")
    again = caller.run("rerun", "-q", "--name", "y", "x")
    assert (again.code, again.out) == (0, "text"), again.err
    assert (extra / "made").exists()
    missing = caller.run("run", "--ro", f"../nothing{ODD}", "--", "true")
    assert missing.code == 2
    assert "nothingjos\\xe9" in missing.err


def test_a_bundle_of_such_a_run_is_written(caller: Sandboxed) -> None:
    """Spec, report and the artifact that has such a name."""
    work = odd_workspace(caller)
    caller.make(f"workspace/{ODD}/m.py", AGENT)
    assert caller.run("run", "-q", "--name", "x", "m.py:main", cwd=work).code == 0
    done = caller.run("export", "-f", "-", "x")
    assert done.code == 0, done.err
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as bundle:
        names = bundle.getnames()
        (spec,) = (name for name in names if name.endswith("/spec.json"))
        file = bundle.extractfile(spec)
        assert file is not None
        assert to_bytes(json.load(file)["cwd"]) == os.fsencode(work)
        assert any(name.endswith("/artifacts/made\\xff") for name in names)


def test_explain_tells_of_such_a_workspace(caller: Sandboxed) -> None:
    """As text that a program can turn back, and as bytes to people."""
    work = odd_workspace(caller)
    told = caller.run("run", "--explain", "-o", "json", "--", "true", cwd=work).json()
    assert to_bytes(told["workspace"]) == os.fsencode(work)
    assert "jos\\xe9" in caller.run("run", "--explain", "--", "true", cwd=work).out


def test_the_state_may_lie_in_such_a_directory(tmp_path: Path) -> None:
    """Runs, their sockets and what answers there."""
    home = AgentctlHome(tmp_path / ODD / "state")
    assert home.run("run", "-d", "--name", "x", "--", "sleep", "100").code == 0
    try:
        assert home.run("ps", "-q").out.strip()
        assert home.run("show", "x", "-o", "json").json()["state"] == "running"
    finally:
        stopped = home.run("stop", "x")
    assert stopped.code == 0, stopped.err
    assert home.run("prune", "--keep", "0").code == 0


def test_a_file_of_settings_may_name_such_a_path(caller: Sandboxed) -> None:
    """TOML is UTF-8: the byte is written there as it is in JSON."""
    caller.make(f"workspace/seen{ODD}")
    caller.make(f"workspace/seen{ODD}/file", "text")
    work = caller.make("workspace/work")
    caller.make("workspace/agentctl.toml", 'ro = ["seenjos\\u0000e9"]\n')
    caller.make("workspace/work/here", "")
    done = caller.run("run", "-q", "--", "cat", f"../seen{ODD}/file", cwd=work)
    assert (done.code, done.out) == (0, "text"), done.err


async def test_an_input_that_fits_into_no_message_is_refused(tmp_path: Path) -> None:
    """Else the agent would wait for ever for what it is to do."""
    home = Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)
    spec = RunSpec(target="m.py:main", input="x" * (1 << 21), cwd=str(tmp_path))
    async with Supervisor.open(home) as supervisor:
        with pytest.raises(SpecError, match="too long"):
            await supervisor.start(spec)
        assert supervisor.live_runs() == []
