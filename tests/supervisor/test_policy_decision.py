"""What of a workspace that runs have been in is kept from the next one."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from agentctl_protocol.spawning import Bind
from agentctl_protocol.spec import RunSpec, SpecError
from agentctl_protocol.vocabulary import Network, Sandbox
from agentctl_supervisor.policy.decision import Ground, Policy, decide
from agentctl_supervisor.policy.git_names import MOST
from agentctl_testkit import ORDINARY_UID
from agentctl_testkit_capabilities import Capability, needs


def _policy(
    workspace: Path, /, *argv: str, environ: dict[str, str] | None = None, **more: Any
) -> Policy:
    given: dict[str, Any] = {"argv": argv or ("/bin/true",)}
    spec = RunSpec(**{**given, "sandbox": Sandbox.STRICT, "net": Network.NONE, **more})
    known = {"PATH": "/usr/bin:/bin", "HOME": "/nowhere", **(environ or {})}
    ground = Ground(known, str(workspace), "/state/r")
    return decide(spec, ground)


def _read_only(policy: Policy, workspace: Path) -> set[str]:
    return {
        os.path.relpath(piece.path, workspace)
        for piece in policy.view.pieces
        if isinstance(piece.part, Bind) and not piece.writable
        if piece.path.startswith(f"{workspace}/")
    }


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    found = tmp_path.resolve() / "w"
    found.mkdir()
    return found


def _write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("name", ["pyproject.toml", "venv/pyvenv.cfg"])
def test_a_fifo_holds_nobody_up(workspace: Path, name: str) -> None:
    """A run can put one where the next run's policy reads."""
    (workspace / "venv/bin").mkdir(parents=True)
    (workspace / "venv/bin/python").symlink_to("/bin/true")
    os.mkfifo(workspace / name)
    assert _policy(workspace, str(workspace / "venv/bin/python")).workspace is not None


@pytest.mark.parametrize(
    ("text", "is_protected"),
    [
        ("[tool.agentctl]\n", True),
        ("[tool.agentctl.profile.x]\n", True),
        ('[ tool . "agentctl" ]\n', True),
        ('tool.agentctl.sandbox = "strict"\n', True),
        ("[tool]\nagentctl = {}\n", True),
        ("agentctl = [\n", True),
        ('[project]\ndependencies = ["agentctl"]\n', False),
        ("[tool.other]\n", False),
    ],
)
def test_settings_are_protected_however_they_are_written(
    workspace: Path, text: str, is_protected: bool
) -> None:
    """And a file without any is the run's to change."""
    _write(workspace / "pyproject.toml", text)
    found = _read_only(_policy(workspace), workspace)
    assert found == ({"pyproject.toml"} if is_protected else set())


def test_git_obeys_more_than_its_hooks(workspace: Path) -> None:
    """Submodules, nested and with slashes in their names, other working trees, settings."""
    git = workspace / ".git"
    _write(
        git / "config", "[core]\n\thooksPath = .githooks ; ours\n[include] path = ../shared.cfg\n"
    )
    _write(git / "info/attributes")
    _write(git / "modules/lib/a/HEAD")
    _write(git / "modules/lib/a/config")
    (git / "modules/lib/a/hooks").mkdir()
    _write(git / "modules/lib/a/modules/b/HEAD")
    _write(git / "modules/lib/a/modules/b/config")
    _write(git / "worktrees/x/config.worktree")
    _write(git / "worktrees/x/commondir")
    _write(workspace / ".githooks/pre-commit")
    _write(workspace / "shared.cfg")
    wanted = {
        *(".git/config", ".git/info/attributes", ".githooks", "shared.cfg"),
        *(".git/modules/lib/a/config", ".git/modules/lib/a/hooks"),
        ".git/modules/lib/a/modules/b/config",
        *(".git/worktrees/x/config.worktree", ".git/worktrees/x/commondir"),
    }
    assert _read_only(_policy(workspace), workspace) == wanted
    freed = {name for name in wanted if not name.startswith(".git/modules/lib/")}
    policy = _policy(workspace, unprotect=(".git/modules/lib",))
    assert _read_only(policy, workspace) == freed


def test_a_repository_of_a_runs_making_costs_little(workspace: Path) -> None:
    """However many submodules it claims to have; and links lead nowhere."""
    modules = workspace / ".git/modules"
    for number in range(MOST + 5):
        _write(modules / f"{number:03}/HEAD")
        _write(modules / f"{number:03}/config")
    (modules / "0-link").symlink_to("/etc")
    _write(workspace / ".git/config", "[core]\nhooksPath = /etc\n[include]\npath = ../..\n")
    assert len(_read_only(_policy(workspace), workspace)) == MOST + 1


def test_compiled_code_is_as_much_the_agents_as_its_source(workspace: Path) -> None:
    """Python believes a ``.pyc`` whose header fits, so that it would be the next run's code."""
    _write(workspace / "agent.py")
    _write(workspace / "__pycache__/agent.cpython-311.pyc")
    wanted = {"agent.py", "__pycache__"}
    by_name = _policy(workspace, argv=None, target="agent:main")
    as_module = _policy(workspace, "/usr/bin/python3", "-m", "agent")
    assert _read_only(by_name, workspace) == _read_only(as_module, workspace) == wanted


def test_only_protected_names_can_be_given_away(workspace: Path) -> None:
    """A slip of the pen is told."""
    with pytest.raises(SpecError, match="nothing protected is called"):
        _policy(workspace, unprotect=(".git/objects",))


@pytest.mark.parametrize("level", [Sandbox.STRICT, Sandbox.STANDARD])
@pytest.mark.parametrize("entry", ["", "not-there", "not/there", "to-elsewhere", "{w}"])
@pytest.mark.parametrize("variable", ["PYTHONPATH", "sys.path"])
def test_where_agentctl_imports_from_is_no_runs_workspace(
    workspace: Path, entry: str, variable: str, level: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ``sitecustomize`` there would be executed by the next ``agentctl``, outside."""
    (workspace / "to-elsewhere").symlink_to("/usr")
    environ = _imports(workspace, entry.format(w=workspace), variable, monkeypatch)
    policy = _policy(workspace, environ=environ, sandbox=level)
    assert policy.workspace is not None
    assert policy.workspace.private
    explicit: tuple[dict[str, Any], ...] = ({"workspace": "."}, {"rw": (str(workspace),)})
    for option in explicit:
        with pytest.raises(SpecError, match="agentctl"):
            _policy(workspace, environ=environ, sandbox=level, **option)


@pytest.mark.parametrize("entry", ["src", "a/link", "src/not-there", "src/file.zip"])
@pytest.mark.parametrize("variable", ["PYTHONPATH", "sys.path"])
def test_what_agentctl_imports_from_within_a_workspace_is_read_only(
    workspace: Path, entry: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory, or whatever decides what it is; also when ``--rw`` names one around it."""
    _write(workspace / "src/file.zip")
    (workspace / "a").mkdir()
    (workspace / "a/link").symlink_to("/usr/lib")
    environ = _imports(workspace, entry, variable, monkeypatch)
    wanted = {"a/link": "a", "src/file.zip": "src/file.zip"}.get(entry, "src")
    assert _read_only(_policy(workspace, environ=environ), workspace) == {wanted}
    above = _policy(workspace / "a", environ=environ, rw=(str(workspace),))
    if variable == "sys.path":
        assert wanted in _read_only(above, workspace)
        with pytest.raises(SpecError, match="agentctl itself imports"):
            _policy(workspace, environ=environ, rw=(wanted,))
    with pytest.raises(SpecError, match="cannot be kept"):
        _policy(workspace, environ=environ, sandbox=Sandbox.STANDARD)


def _imports(
    workspace: Path, entry: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    """The environment of an agentctl that has *entry* from *variable*."""
    if variable == "PYTHONPATH":
        return {"PYTHONPATH": f"/usr/lib/python3:{entry}"}
    monkeypatch.setattr(sys, "path", [*sys.path, os.path.join(workspace, entry)])
    return {}


@needs(Capability.ROOT)
def test_what_is_protected_stays_its_owners(workspace: Path) -> None:
    """Root's key in the directory of a user is not shown as a file of that user's."""
    _write(workspace / ".netrc")
    _write(workspace / ".npmrc")
    for path in (workspace, workspace / ".npmrc"):
        os.chown(path, ORDINARY_UID, ORDINARY_UID)
    mapped = {
        piece.path: piece.part.mapped
        for piece in _policy(workspace).view.pieces
        if isinstance(piece.part, Bind)
    }
    assert mapped[str(workspace)]
    assert mapped[f"{workspace}/.npmrc"]
    assert not mapped[f"{workspace}/.netrc"]


def test_a_runs_own_python_path_is_its_own(workspace: Path) -> None:
    """``--env PYTHONPATH=...`` is for the run alone."""
    (workspace / "src").mkdir()
    policy = _policy(workspace, env={"PYTHONPATH": "src"})
    assert policy.workspace is not None
    assert not policy.workspace.private
    assert _read_only(policy, workspace) == set()
