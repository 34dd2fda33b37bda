"""Names that other programs obey: which of them a run could make or change."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor.workspace.exposure import Names, exposed, names_now
from agentctl_testkit.ticks import after_a_tick

EVERYTHING = 0


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_at_strict_what_was_there_is_protected(tmp_path: Path, root: int) -> None:
    """Only what comes to be can be the run's; at standard nothing is protected."""
    (tmp_path / ".git/hooks").mkdir(parents=True)
    (tmp_path / ".bashrc").write_text("")
    (tmp_path / "pyproject.toml").write_text("[project]")

    strict = names_now(os.fsencode(tmp_path), (), Sandbox.STRICT)
    standard = names_now(os.fsencode(tmp_path), (), Sandbox.STANDARD)
    (tmp_path / ".git/config").write_text("")

    assert strict.protected == {b".git/hooks", b".bashrc"}
    assert standard.protected == frozenset()
    assert exposed(root, after_a_tick(), strict) == []
    assert b".git/config" in exposed(root, EVERYTHING, strict)
    assert exposed(root, EVERYTHING, standard) == [b".bashrc", b".git/config", b".git/hooks"]


def test_only_what_was_touched_since_is_told(tmp_path: Path, root: int) -> None:
    """A name that was there and stayed as it was is nothing to look at."""
    (tmp_path / ".vscode/deep").mkdir(parents=True)
    (tmp_path / ".vscode/deep/tasks.json").write_text("")
    (tmp_path / ".idea").mkdir()
    names = names_now(os.fsencode(tmp_path), (), Sandbox.STANDARD)
    since = after_a_tick()
    assert exposed(root, since, names) == []

    (tmp_path / ".vscode/deep/tasks.json").write_text("run me")

    assert exposed(root, since, names) == [b".vscode"]


def test_a_repository_is_not_one_name_and_a_git_file_is(tmp_path: Path, root: int) -> None:
    """Commits change .git all the time; as a file it says where the repository is."""
    names = names_now(os.fsencode(tmp_path), (), Sandbox.STANDARD)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/index").write_text("")
    assert exposed(root, EVERYTHING, names) == []

    (tmp_path / ".git").rename(tmp_path / "was")
    (tmp_path / ".git").write_text("gitdir: was")

    assert exposed(root, EVERYTHING, names) == [b".git"]


def test_a_name_that_is_a_link_is_told_by_its_name(tmp_path: Path, root: int) -> None:
    """Nothing can be mounted on a link, so the run may change what it means."""
    (tmp_path / "real/hooks").mkdir(parents=True)
    (tmp_path / "my.bashrc").write_text("")
    (tmp_path / ".git").symlink_to("real")
    (tmp_path / ".bashrc").symlink_to("my.bashrc")
    (tmp_path / ".profile").symlink_to("/etc/profile")
    since = after_a_tick()

    names = names_now(os.fsencode(tmp_path), (), Sandbox.STRICT)
    (tmp_path / "real/hooks/post-merge").write_text("")
    (tmp_path / "real/config").write_text("")
    (tmp_path / "real/index").write_text("")
    (tmp_path / "my.bashrc").write_text("evil")

    assert names.protected == frozenset()
    assert exposed(root, since, names) == [b".bashrc", b".git/config", b".git/hooks"]


def test_a_directory_with_too_much_in_it_is_told(tmp_path: Path, root: int) -> None:
    """Where not everything could be looked at, nobody can say that nothing changed."""
    (tmp_path / ".vscode").mkdir()
    for number in range(2500):
        (tmp_path / f".vscode/{number}").write_text("")
    names = names_now(os.fsencode(tmp_path), (), Sandbox.STANDARD)

    assert exposed(root, after_a_tick(), names) == [b".vscode"]


def test_what_was_given_free_is_not_told(tmp_path: Path, root: int) -> None:
    """Whoever allowed it knows."""
    names = names_now(os.fsencode(tmp_path), (".git",), Sandbox.STRICT)
    (tmp_path / ".git/hooks").mkdir(parents=True)
    (tmp_path / ".bashrc").write_text("")

    assert exposed(root, EVERYTHING, names) == [b".bashrc"]


def test_repositories_further_down_are_told_after_our_own(tmp_path: Path, root: int) -> None:
    """As the walk came by them."""
    names = names_now(os.fsencode(tmp_path), (), Sandbox.STRICT)
    (tmp_path / ".profile").write_text("")

    told = exposed(root, EVERYTHING, names, [b"b/.git/hooks", b"a/.git/config"])

    assert told == [b".profile", b"a/.git/config", b"b/.git/hooks"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[tool.agentctl]\n", True),
        ("[project]\n", False),
        ("# " + "x" * (1 << 20) + "\n[tool.agentctl]\n", True),
        (None, True),
    ],
)
def test_a_project_file_is_exposed_if_it_may_have_our_settings(
    tmp_path: Path, root: int, text: str | None, told: bool
) -> None:
    """Every run may change the project's file otherwise: that is its work."""
    if text is None:
        os.mkfifo(tmp_path / "pyproject.toml")
    else:
        (tmp_path / "pyproject.toml").write_text(text)

    names = Names(obeyed=frozenset({b"pyproject.toml"}))

    assert exposed(root, EVERYTHING, names) == ([b"pyproject.toml"] if told else [])


def test_a_protected_name_that_somebody_exchanges_is_protected_no_more(
    tmp_path: Path, root: int
) -> None:
    """Renaming over it, as git does with its config, takes the run's mount away."""
    (tmp_path / ".git/hooks").mkdir(parents=True)
    (tmp_path / ".git/config").write_text("")
    (tmp_path / ".vscode").mkdir()
    names = names_now(os.fsencode(tmp_path), (), Sandbox.STRICT)
    since = after_a_tick()
    # What others put into a directory says nothing: its mount is still there.
    (tmp_path / ".vscode/tasks.json").write_text("")
    assert exposed(root, since, names) == []

    (tmp_path / ".git/config.lock").write_text("")
    (tmp_path / ".git/config.lock").rename(tmp_path / ".git/config")
    (tmp_path / ".git/hooks").rename(tmp_path / ".git/old")
    (tmp_path / ".git/hooks").mkdir()

    assert exposed(root, since, names) == [b".git/config", b".git/hooks"]


def test_settings_that_a_run_adds_are_told_of(tmp_path: Path, root: int) -> None:
    """To mention agentctl is not to configure it: such a file was not protected."""
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["agentctl"]\n')
    names = names_now(os.fsencode(tmp_path), (), Sandbox.STRICT)
    since = after_a_tick()
    (tmp_path / "pyproject.toml").write_text("[tool.agentctl]\n")
    assert exposed(root, since, names) == [b"pyproject.toml"]
