"""What of a workspace that runs have been in is kept from the next one."""

import os
from pathlib import Path

import pytest

from agentctl_protocol.spawning import Bind
from agentctl_protocol.spec import SpecError
from agentctl_supervisor.policy.git_names import MOST
from agentctl_testkit import ORDINARY_UID
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.policy import policy_in, read_only_in


def _write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("name", ["pyproject.toml", "venv/pyvenv.cfg"])
def test_a_fifo_holds_nobody_up(workspace: Path, name: str) -> None:
    """A run can put one where the next run's policy reads."""
    (workspace / "venv/bin").mkdir(parents=True)
    (workspace / "venv/bin/python").symlink_to("/bin/true")
    os.mkfifo(workspace / name)
    assert policy_in(workspace, str(workspace / "venv/bin/python")).workspace is not None


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
    found = read_only_in(policy_in(workspace), workspace)
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
    assert read_only_in(policy_in(workspace), workspace) == wanted
    freed = {name for name in wanted if not name.startswith(".git/modules/lib/")}
    policy = policy_in(workspace, unprotect=(".git/modules/lib",))
    assert read_only_in(policy, workspace) == freed


def test_a_repository_of_a_runs_making_costs_little(workspace: Path) -> None:
    """More submodules than are looked at are protected all at once; and links lead nowhere."""
    modules = workspace / ".git/modules"
    for number in range(MOST + 5):
        _write(modules / f"{number:03}/HEAD")
        _write(modules / f"{number:03}/config")
    (modules / "0-link").symlink_to("/etc")
    _write(workspace / ".git/config", "[core]\nhooksPath = /etc\n[include]\npath = ../..\n")
    found = read_only_in(policy_in(workspace), workspace)
    assert found == {".git/modules", ".git/config"}


def test_compiled_code_is_as_much_the_agents_as_its_source(workspace: Path) -> None:
    """Python believes a ``.pyc`` whose header fits, so that it would be the next run's code."""
    _write(workspace / "agent.py")
    _write(workspace / "__pycache__/agent.cpython-311.pyc")
    wanted = {"agent.py", "__pycache__"}
    by_name = policy_in(workspace, argv=None, target="agent:main")
    as_module = policy_in(workspace, "/usr/bin/python3", "-m", "agent")
    assert read_only_in(by_name, workspace) == read_only_in(as_module, workspace) == wanted


def test_only_protected_names_can_be_given_away(workspace: Path) -> None:
    """A slip of the pen is told."""
    with pytest.raises(SpecError, match="nothing protected is called"):
        policy_in(workspace, unprotect=(".git/objects",))


@needs(Capability.ROOT)
def test_what_is_protected_stays_its_owners(workspace: Path) -> None:
    """Root's key in the directory of a user is not shown as a file of that user's."""
    _write(workspace / ".netrc")
    _write(workspace / ".npmrc")
    for path in (workspace, workspace / ".npmrc"):
        os.chown(path, ORDINARY_UID, ORDINARY_UID)
    mapped = {
        piece.path: piece.part.mapped
        for piece in policy_in(workspace).view.pieces
        if isinstance(piece.part, Bind)
    }
    assert mapped[str(workspace)]
    assert mapped[f"{workspace}/.npmrc"]
    assert not mapped[f"{workspace}/.netrc"]
