"""`agentctl rerun`: the same again, with the environment of now."""

import subprocess
from pathlib import Path

import pytest

from agentctl_protocol.spec import RunSpec
from agentctl_supervisor.cli.commands.rerun import renewed
from agentctl_testkit import AgentctlHome


def test_the_same_runs_again_wherever_it_is_called_from(home: AgentctlHome, tmp_path: Path) -> None:
    """Program, arguments, directory, input, limits, tags and name are those of the old run."""
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "agent.py").write_text(
        "import os\ndef main(value): return [value, os.getcwd(), os.environ['COLOUR']]\n"
    )
    target = ("--name", "demo", "--tag", "a=b", "--time", "1h", "agent.py:main")
    first = subprocess.run(
        home.argv("run", "--input", '{"n": 1}', *target),
        env=home.environment | {"COLOUR": "red"},
        cwd=tmp_path / "here",
        capture_output=True,
        check=True,
    )
    assert b'"red"' in first.stdout
    again = home.run("rerun", "demo", environment={"COLOUR": "blue"})
    assert (again.code, again.err) == (0, "")
    assert again.json() == [{"n": 1}, str(tmp_path / "here"), "blue"]
    reports = [home.run("show", run, "-o", "json").json() for run in _ids(home)]
    assert len(reports) == 2
    for key in ("name", "tags", "command", "limits", "value"):
        values = [report[key] for report in reports]
        assert key == "value" or values[0] == values[1]
    # The name means the newest.
    assert home.run("show", "demo", "-o", "json").json()["value"][2] == "blue"


def test_another_name_detached_and_the_exit_code(home: AgentctlHome) -> None:
    """As with run."""
    home.run("run", "--name", "demo", "--", "sh", "-c", "exit 3")
    assert home.run("rerun", "-q", "--name", "other", "demo").code == 3
    run = home.run("rerun", "-d", "other").out.strip()
    assert home.run("wait", "--exit-status", run).code == 3
    named = [home.run("show", one, "-o", "json").json()["name"] for one in _ids(home)]
    assert sorted(named) == ["demo", "other", "other"]


def test_the_environment_is_the_callers_and_what_is_missing_is_told() -> None:
    """A run that had an environment of its own gets the same names, with the values of now."""
    stored = RunSpec(argv=("x",), env={"A": "1", "B": "2"}, name="demo").stored()
    spec, missing = renewed(stored, None, {"A": "now", "C": "not asked for"})
    assert (spec.env, spec.env_names, missing) == ({"A": "now"}, (), ["B"])
    assert renewed(RunSpec(argv=("x",)), "n", {"A": "1"}) == (RunSpec(argv=("x",), name="n"), [])


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "which run"),
        (["nosuch"], 4, "no such run"),
        (["--nmae", "x", "demo"], 2, "did you mean --name?"),
        (["--name", "-", "demo"], 2, "not a run name"),
    ],
)
def test_a_slip_starts_nothing(
    home: AgentctlHome, arguments: list[str], code: int, said: str
) -> None:
    """One error, one hint."""
    home.run("run", "--name", "demo", "--", "true")
    done = home.run("rerun", *arguments)
    assert (done.code, said in done.err) == (code, True), done.err
    assert len(_ids(home)) == 1


def _ids(home: AgentctlHome) -> list[str]:
    return home.run("ps", "-aq").out.split()
