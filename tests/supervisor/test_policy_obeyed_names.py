"""The table of names that other programs obey, and what is made of it."""

import runpy
from pathlib import Path

import pytest

from agentctl_supervisor.policy import protected
from agentctl_supervisor.policy.obeyed_names import ANYWHERE, OBEYED, REASONS, reason
from agentctl_supervisor.workspace.changes import _MOST_PARTS

REPOSITORY = Path(__file__).resolve().parents[2]


def test_each_name_stands_once_as_a_walk_can_find_it() -> None:
    """Relative, without a slash too many, and with no more parts than a walk compares."""
    assert len(REASONS) == len(OBEYED)
    for name in REASONS:
        assert all(part not in ("", ".", "..") for part in name.split("/"))
        assert name.count("/") < _MOST_PARTS
    assert all(REASONS.values())


@pytest.mark.parametrize(
    "twins",
    [
        (".devcontainer", ".devcontainer.json"),
        (".pre-commit-config.yaml", ".pre-commit-config.yml", "lefthook.yml", ".lefthook.yaml"),
        ("AGENTS.md", "CLAUDE.md", "GEMINI.md", "QWEN.md", ".github/copilot-instructions.md"),
        (".cursorrules", ".windsurfrules", ".clinerules", ".roorules", ".goosehints"),
        (".git/config", ".hg/hgrc", ".jj/repo"),
        (".envrc", "mise.toml", ".mise.toml", ".tool-versions"),
        (".vscode", ".idea", ".zed", ".helix", ".dir-locals.el", ".nvim.lua"),
        (".bashrc", ".zshrc", ".cshrc", ".config/fish", ".zlogout"),
        (".npmrc", ".yarnrc.yml", ".pnpmfile.cjs", "bunfig.toml"),
        (".gdbinit", ".pdbrc", ".Rprofile", ".irbrc"),
    ],
)
def test_what_is_obeyed_in_one_spelling_is_so_in_the_others(twins: tuple[str, ...]) -> None:
    """A run would otherwise take the other spelling."""
    assert set(twins) <= set(protected.names())


def test_what_a_person_meets_in_any_directory_counts_anywhere() -> None:
    """An agent, a shell and an editor obey these where they are; a home's files only at home."""
    assert {".git", "CLAUDE.md", ".envrc", ".vscode", ".hg/hgrc", "agentctl.toml"} <= ANYWHERE
    assert not {".bashrc", ".ssh", ".gitmodules", ".husky"} & ANYWHERE


def test_a_path_is_told_with_the_reason_of_its_name() -> None:
    """At the top, further down, and in a repository of another name."""
    assert reason("CLAUDE.md") == reason("a/b/CLAUDE.md") == "coding agents follow it"
    assert reason("a/.git/hooks") == reason("evil/hooks") == "git executes them"


def test_in_a_git_directory_the_names_are_those_behind_git(tmp_path: Path) -> None:
    """As ``--rw REPO/.git`` opens it; ``--unprotect`` frees them by their usual name."""
    (tmp_path / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "objects").mkdir()
    assert {"hooks", "config", "commondir"} <= protected.names_in(str(tmp_path)).keys()
    assert "CLAUDE.md" not in protected.names_in(str(tmp_path))
    assert "config" not in protected.names_in(str(tmp_path), (".git/config",))


def test_the_page_of_names_is_what_the_table_says() -> None:
    """Nothing is protected that the page does not list."""
    made = runpy.run_path(str(REPOSITORY / "docs" / "make_names.py"))
    assert made["PAGE"].read_text() == made["page"](), "run: python docs/make_names.py"
