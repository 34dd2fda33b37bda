"""A workspace that has agentctl itself in it: interpreter, packages, state, settings, the code.

All that is kept out of a run's hands though it lies in the directory that the run was given:
who changes it decides what the next supervisor, or the next run, does.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, Final

import pytest

from agentctl_testkit import ORDINARY_UID, as_nobody
from agentctl_testkit_capabilities import Capability, needs
from agentctl_testkit_ordinary import Installation, installed

_PROGRAM: Final = "own_files_attacker.py"

pytestmark = needs(Capability.ROOT, Capability.ORDINARY_PYTHON, Capability.PID_NAMESPACE)


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with installed() as installation:
        yield installation


@pytest.fixture(params=["root", "user"])
def caller(request: pytest.FixtureRequest, installation: Installation) -> dict[str, Any]:
    """Arguments for subprocess; all of the installation is the caller's."""
    uid = 0 if request.param == "root" else ORDINARY_UID
    for directory, _, names in os.walk(installation.directory):
        for path in (directory, *(os.path.join(directory, name) for name in names)):
            os.chown(path, uid, uid, follow_symlinks=False)
    return as_nobody() if uid else {}


def _run(
    installation: Installation, caller: dict[str, Any], *argv: str
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        argv,
        cwd=installation.directory,
        env={
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "AGENTCTL_HOME": str(installation.directory / "state"),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        **caller,
    )


def _agentctl(
    installation: Installation, caller: dict[str, Any], *arguments: str
) -> "subprocess.CompletedProcess[str]":
    python = installation.python
    return _run(installation, caller, python, "-P", "-m", "agentctl_supervisor", *arguments)


def _targets(installation: Installation) -> list[str]:
    """What has to be kept; the state directory is there, and has a run in it."""
    directory = installation.directory
    (site,) = directory.glob("venv/lib/python*/site-packages")
    (directory / "agentctl.toml").touch()
    return [
        str(path)
        for path in (
            directory / "venv/pyvenv.cfg",
            directory / "venv/bin/activate",
            site / "agentctl_child/__init__.py",
            site / "agentctl_protocol/spec.py",
            site / "msgspec/__init__.py",
            next(directory.glob("state/runs/*/spec")),
            directory / "agentctl.toml",
            installation.agents / _PROGRAM,
        )
    ]


def _attempts(text: str, installation: Installation) -> dict[str, str]:
    """Without those that are the run's right: to make files where nothing of ours is."""
    project = {f"{installation.directory}/agentctl.toml", f"{installation.agents}/{_PROGRAM}"}
    said: dict[str, str] = json.loads(text.splitlines()[-1])
    theirs = {f"create beside {path}" for path in project}
    return {what: how for what, how in said.items() if what not in theirs}


def test_what_is_agentctls_is_kept_from_a_run_that_has_it_in_its_workspace(
    installation: Installation, caller: dict[str, Any]
) -> None:
    """Each attempt works outside; inside none does, and nothing is left on the host."""
    directory = installation.directory
    first = _agentctl(
        *(installation, caller, "run", "-q", "--sandbox", "basic"),
        *("--", "/bin/true"),
    )
    assert first.returncode == 0, first.stderr
    targets = _targets(installation)
    program = str(installation.agents / _PROGRAM)
    command = (installation.python, program, json.dumps(targets))
    before = {str(path) for path in directory.rglob("*")}

    outside = _attempts(_run(installation, caller, *command).stdout, installation)
    inside = _agentctl(
        *(installation, caller, "run", "-q", "--sandbox", "strict"),
        *("--workspace", str(directory), "--", *command),
    )

    assert {what: how for what, how in outside.items() if how != "done"} == {}
    assert inside.returncode == 0, inside.stderr
    worked = [what for what, how in _attempts(inside.stdout, installation).items() if how == "done"]
    assert worked == []
    left = {str(path) for path in directory.rglob("*")} - before
    assert [path for path in left if "/state/" not in path and "__pycache__" not in path] == []


def test_standard_cannot_keep_it_and_says_so(
    installation: Installation, caller: dict[str, Any]
) -> None:
    """Landlock takes nothing out of a directory that is given: the run is refused, with a hint."""
    refused = _agentctl(
        *(installation, caller, "run", "--sandbox", "standard"),
        *("--workspace", str(installation.directory), "--", "/bin/true"),
    )

    assert refused.returncode in (2, 125)
    assert "cannot be kept from a run" in refused.stderr
    assert "hint: --workspace DIR without it, or --sandbox strict" in refused.stderr


@pytest.mark.parametrize("how", ["PYTHONPATH", ".pth"])
def test_nothing_that_a_run_leaves_is_executed_by_the_next_agentctl(
    installation: Installation, caller: dict[str, Any], how: str
) -> None:
    """No run writes where agentctl imports from: what Python executes unasked may be left there.

    A project that is installed in development mode beside agentctl is on its search path.
    """
    project = installation.directory / "flat"
    project.mkdir()
    if caller:
        os.chown(project, ORDINARY_UID, ORDINARY_UID)
    (site,) = installation.directory.glob("venv/lib/python*/site-packages")
    if how == ".pth":
        (site / "flat.pth").write_text(f"{project}\n")
    variables = [] if how == ".pth" else ["PYTHONPATH=."]
    agentctl = ("env", *variables, installation.python, "-P", "-m", "agentctl_supervisor")
    leave = "mkdir sitecustomize; echo 'print(\"executed\")' > sitecustomize/__init__.py"
    there = ("env", "--chdir", str(project))

    def agentctl_there(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return _run(installation, caller, *there, *agentctl, *arguments)

    try:
        told = agentctl_there("run", "--", "sh", "-c", leave)
        assert told.returncode == 0, told.stderr
        assert "is where agentctl itself imports from" in told.stderr
        refused = agentctl_there("run", "--workspace", ".", "--", "sh", "-c", leave)
        assert refused.returncode == 2
        assert list(project.iterdir()) == []
        assert "executed" not in agentctl_there("ps").stdout
        # It was no idle fear.  (Debian has a sitecustomize itself, before what .pth files name.)
        _run(installation, caller, *there, "sh", "-c", leave)
        assert how == ".pth" or "executed" in agentctl_there("ps").stdout
    finally:
        (site / "flat.pth").unlink(missing_ok=True)
        shutil.rmtree(project)
