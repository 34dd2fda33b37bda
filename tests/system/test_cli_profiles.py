"""``agentctl run`` with configuration files: what holds, what is told, and what it costs."""

import subprocess
import sys
from pathlib import Path

import pytest

from agentctl_testkit import AgentctlHome

_LOADED = (
    "import sys\n"
    "from agentctl_supervisor.cli import main\n"
    "main(sys.argv[1:])\n"
    "print(*sorted(sys.modules), file=sys.stderr)"
)


@pytest.fixture
def project(tmp_path: Path, home: AgentctlHome) -> Path:
    """A directory to run in; the user's file is in ``mine``, next to it."""
    (tmp_path / "mine/agentctl").mkdir(parents=True)
    home.environment["XDG_CONFIG_HOME"] = str(tmp_path / "mine")
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def test_the_report_says_where_settings_came_from(home: AgentctlHome, project: Path) -> None:
    """In JSON and on the page, for limits and sandbox; the default is not worth a word there."""
    (project / "agentctl.toml").write_text('time = "90s"\n[profile.ci]\noutput = "2M"\n')
    done = home.run("run", "-p", "ci", "--name", "x", "-o", "json", "--", "true", cwd=project)
    report = done.json()
    assert report["limits"] == [
        {"name": "time", "value": 90.0, "origin": "./agentctl.toml"},
        {"name": "output", "value": float(2 << 20), "origin": "./agentctl.toml [profile.ci]"},
    ]
    assert report["origins"]["sandbox"] == "env AGENTCTL_SANDBOX"
    shown = " ".join(home.run("show", "x").out.split())
    assert "sandbox basic (env AGENTCTL_SANDBOX):" in shown
    assert "time 1m 30s (./agentctl.toml)" in shown
    assert "output 2 MiB (./agentctl.toml [profile.ci])" in shown


def test_a_run_cannot_open_the_next_one(home: AgentctlHome, project: Path) -> None:
    """What an agent leaves in the project's file is refused, and its way out works."""
    script = """echo 'sandbox = "none"' > agentctl.toml"""
    home.run("run", "--", "sh", "-c", script, cwd=project)
    done = home.run("run", "--", "true", cwd=project, environment={"AGENTCTL_SANDBOX": ""})
    assert (done.code, done.out) == (2, "")
    error, hint = done.err.splitlines()
    assert error == (
        'error: ./agentctl.toml asks for sandbox = "none", and a run can write that file'
    )
    assert hint == (
        f'hint: --sandbox none for this once; for always, trust = ["{project}"]'
        f" in {project.parent}/mine/agentctl/config.toml"
    )
    assert home.run("run", "-p", "none", "--sandbox", "basic", "--", "true", cwd=project).code == 0


def test_a_file_reaches_a_detached_run(home: AgentctlHome, project: Path) -> None:
    """Its supervisor is told what was decided, and reads no file itself."""
    (project / "agentctl.toml").write_text('time = "300ms"\nterm-grace = 0\n')
    done = home.run("run", "-d", "--", "sleep", "60", cwd=project)
    assert done.code == 0, done
    home.run("wait", done.out.strip())
    report = home.run("show", "-o", "json", done.out.strip()).json()
    assert (report["result"], report["reason"]) == ("limit", "time")
    assert report["limits"][0]["origin"] == "./agentctl.toml"


@pytest.mark.parametrize(
    "arguments", [["stop", "--all"], ["ps"], ["logs", "nosuch"], ["show", "nosuch"]], ids=" ".join
)
def test_who_stops_and_looks_reads_no_configuration(
    home: AgentctlHome, project: Path, arguments: list[str]
) -> None:
    """A broken file hinders nobody, and costs nothing."""
    (project / "agentctl.toml").write_text("= broken")
    loaded = _modules(home, project, *arguments)
    assert "agentctl_supervisor.cli.arguments" in loaded
    assert not {"tomllib", "agentctl_supervisor.config.files"} & loaded


def test_without_a_file_no_parser_is_loaded(home: AgentctlHome, project: Path) -> None:
    """Neither for a pyproject.toml that has nothing of ours."""
    (project / "pyproject.toml").write_text("[project]\n")
    loaded = _modules(home, project, "run", "--time", "x", "--", "true")
    assert "agentctl_supervisor.config.files" in loaded
    assert "tomllib" not in loaded
    loaded = _modules(home, project, "run", "--", "true")
    assert "tomllib" not in loaded


def _modules(home: AgentctlHome, cwd: Path, *arguments: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", _LOADED, *arguments],
        env=home.environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.splitlines()[-1].split())
