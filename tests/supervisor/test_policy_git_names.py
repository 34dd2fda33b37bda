"""What git obeys that is named elsewhere than in the repository's own ``.git/config``."""

import os
from pathlib import Path

import pytest

from agentctl_supervisor.policy import git_names, protected
from agentctl_supervisor.policy.untrusted_files import UnreadableError
from agentctl_testkit.policy import policy_in, read_only_in


def test_settings_of_submodules_and_working_trees_count_where_their_files_lie(
    workspace: Path,
) -> None:
    """A relative path of hooks means files in the working tree that the settings are for."""
    git = workspace / ".git"
    _write(git / "config", "[core]\n\thooksPath = hooks-of-all\n")
    _write(git / "modules/lib/HEAD")
    _write(
        git / "modules/lib/config",
        "[core]\n\tworktree = ../../../sub/lib\n\thooksPath = .githooks\n"
        "[include]\n\tpath = more\n",
    )
    _write(git / "modules/lib/more", "[core]\n\tfsmonitor = ./monitor\n")
    _write(git / "worktrees/x/gitdir", f"{workspace}/x/.git\n")
    _write(git / "worktrees/x/config.worktree", "[core]\n\thooksPath = own\n")
    for name in ("sub/lib/.githooks/a", "sub/lib/monitor", "x/own/a", "x/hooks-of-all/a"):
        _write(workspace / name)
    _write(workspace / ".githooks/not-this")
    found = read_only_in(policy_in(workspace), workspace)
    assert {"sub/lib/.githooks", "sub/lib/monitor", ".git/modules/lib/more"} <= found
    assert {"x/own", "x/hooks-of-all"} <= found
    assert ".githooks" not in found
    freed = read_only_in(policy_in(workspace, unprotect=(".git/modules",)), workspace)
    assert "sub/lib/.githooks" not in freed


@pytest.mark.parametrize("kind", ["worktree", "submodule"])
def test_behind_a_git_file_settings_are_those_of_its_repository(
    workspace: Path, tmp_path: Path, kind: str
) -> None:
    """As in a linked working tree, or a submodule, that is the workspace itself."""
    repository = tmp_path / "elsewhere"
    directory = repository / ("worktrees/w" if kind == "worktree" else "")
    if kind == "worktree":
        _write(directory / "commondir", "../..\n")
    _write(repository / "config", "[core]\n\thooksPath = .githooks\n")
    _write(directory / "config.worktree", "[core]\n\tfsmonitor = ./monitor\n")
    _write(workspace / ".git", f"gitdir: {directory}\n")
    _write(workspace / ".githooks/pre-commit")
    _write(workspace / "monitor")
    found = read_only_in(policy_in(workspace), workspace)
    assert found == {".git", ".githooks", "monitor"}


def test_the_users_own_settings_count_in_every_repository(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``git config --global core.hooksPath .githooks``; and without a repository they do not."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    _write(tmp_path / "home/.gitconfig", "[core]\n\thooksPath = .githooks\n")
    _write(workspace / ".githooks/pre-commit")
    assert ".githooks" not in protected.names_in(str(workspace))
    _write(workspace / ".git/config")
    assert ".githooks" in protected.names_in(str(workspace))
    _write(tmp_path / "home/.gitconfig", "[core")
    assert ".githooks" not in protected.names_in(str(workspace))


@pytest.mark.parametrize("text", ["[core\n", "[core]\nhooksPath = a\0b\n", None])
def test_settings_of_a_submodule_that_cannot_be_understood_refuse_the_run(
    workspace: Path, text: str | None
) -> None:
    """They are as much git's as those of the repository; the way out is named."""
    module = workspace / ".git/modules/m"
    _write(module / "HEAD")
    if text is None:
        os.mkfifo(module / "config")
    else:
        _write(module / "config", text)
    with pytest.raises(UnreadableError, match=r"\.git/modules/m/config"):
        policy_in(workspace)
    policy_in(workspace, unprotect=(".git/modules",))


def test_a_flood_of_directories_hides_no_submodule(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that makes more than are looked at is seen, and the next one refused."""
    monkeypatch.setattr(git_names, "_ENTRIES", 10)
    for number in range(11):
        (workspace / f".git/modules/a{number:02}").mkdir(parents=True)
    with pytest.raises(UnreadableError, match=r"more than 10") as caught:
        policy_in(workspace)
    assert "--unprotect .git/modules" in caught.value.hint
    policy_in(workspace, unprotect=(".git/modules",))


def _write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
