"""Configuration files: which ones are found, and what is not believed."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from agentctl_supervisor.config import files
from agentctl_supervisor.errors import UsageError
from agentctl_testkit import ORDINARY_UID
from agentctl_testkit.capabilities import Capability, needs


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A home directory with a repository in it, and a directory in that: ``repo/a/b``."""
    (tmp_path / "home/repo/a/b").mkdir(parents=True)
    (tmp_path / "home/repo/.git").mkdir()
    return tmp_path / "home"


def found_from(directory: Path, home: Path) -> str | None:
    file = files.find_project(str(directory), {"HOME": str(home)})
    return None if file is None else file.path


def refusal_of(directory: Path, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        files.find_project(str(directory), environ or {"HOME": "/nonexistent"})
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize("place", ["repo/a/b", "repo/a", "repo"])
def test_the_nearest_file_counts_up_to_the_root_of_the_working_tree(tree: Path, place: str) -> None:
    """One above the directory with ``.git`` is another project's."""
    (tree / "agentctl.toml").write_text("")
    assert found_from(tree / "repo/a/b", tree) is None
    (tree / place / "agentctl.toml").write_text("")
    assert found_from(tree / "repo/a/b", tree) == str(tree / place / "agentctl.toml")


def test_a_file_that_does_not_hold_is_not_passed_over_in_silence(tree: Path) -> None:
    """A run may have made what comes before it."""
    deepest, environ = tree / "repo/a/b", {"HOME": str(tree)}

    def told() -> str:
        return files.passed_over(str(deepest), environ, files.find_project(str(deepest), environ))

    assert told() == ""
    (tree / "agentctl.toml").write_text("")
    assert told() == "../../../agentctl.toml does not hold here: a repository begins at ../.."
    (tree / "repo/pyproject.toml").write_text("[tool.agentctl]\n")
    assert told() == "../../../agentctl.toml does not hold here: ../../pyproject.toml is nearer"
    (deepest / "agentctl.toml").write_text("")
    assert told() == "../../pyproject.toml does not hold here: ./agentctl.toml is nearer"
    (tree / "agentctl.toml").unlink()
    (tree / "repo/pyproject.toml").unlink()
    assert told() == ""
    # Nothing above the home directory is anybody's project.
    (tree.parent / "agentctl.toml").write_text("")
    assert told() == ""


def test_nothing_above_the_home_directory_is_looked_at(tree: Path) -> None:
    """Neither from within, without any repository, nor from above."""
    (tree / "plain").mkdir()
    (tree.parent / "agentctl.toml").write_text("")
    assert found_from(tree / "plain", tree) is None
    assert found_from(tree.parent, tree) is None
    (tree / "agentctl.toml").write_text("")
    assert found_from(tree / "plain", tree) == str(tree / "agentctl.toml")


def test_the_own_file_comes_before_pyproject(tree: Path) -> None:
    """Which counts only with a table of ours."""
    repo = tree / "repo"
    (repo / "pyproject.toml").write_text("[tool.other]\nx = 1  # agentctl\n")
    assert found_from(repo, tree) is None
    (repo / "pyproject.toml").write_text('[tool.agentctl]\ntime = "5s"\n')
    assert found_from(repo, tree) == str(repo / "pyproject.toml")
    (repo / "agentctl.toml").write_text("")
    assert found_from(repo, tree) == str(repo / "agentctl.toml")


def test_a_pyproject_of_others_is_not_our_business(tree: Path) -> None:
    """Broken TOML in a file that does not name us hinders no run."""
    (tree / "repo/pyproject.toml").write_text("= broken")
    assert found_from(tree / "repo", tree) is None


def test_what_is_found_is_called_as_seen_from_here(tree: Path) -> None:
    """As a person would type it; the user's file from the home directory."""
    (tree / "repo/agentctl.toml").write_text("")
    file = files.find_project(str(tree / "repo/a/b"), {"HOME": str(tree)})
    assert file is not None
    assert file.shown == "../../agentctl.toml"
    file = files.find_project(str(tree / "repo"), {"HOME": str(tree)})
    assert file is not None
    assert file.shown == "./agentctl.toml"
    mine = tree / ".config/agentctl/config.toml"
    mine.parent.mkdir(parents=True)
    mine.write_text("")
    mine.chmod(0o600)
    file = files.find_user({"HOME": str(tree)})
    assert file is not None
    assert (file.path, file.shown) == (str(mine), "~/.config/agentctl/config.toml")


def test_the_users_file_is_where_xdg_says(tmp_path: Path) -> None:
    """A relative `XDG_CONFIG_HOME` is ignored."""
    mine = tmp_path / "x/agentctl/config.toml"
    mine.parent.mkdir(parents=True)
    mine.write_text("")
    mine.chmod(0o644)
    file = files.find_user({"XDG_CONFIG_HOME": str(tmp_path / "x"), "HOME": "/nonexistent"})
    assert file is not None
    assert file.path == str(mine)
    assert files.find_user({"XDG_CONFIG_HOME": "x", "HOME": "/nonexistent"}) is None


def test_a_users_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """It says whom we trust."""
    mine = tmp_path / "agentctl/config.toml"
    mine.parent.mkdir()
    mine.write_text("")
    mine.chmod(0o664)
    with pytest.raises(UsageError, match="others can write") as caught:
        files.find_user({"XDG_CONFIG_HOME": str(tmp_path)})
    assert caught.value.hint.startswith("chmod go-w ")


@needs(Capability.ROOT)
def test_a_users_file_of_another_user_is_refused(tmp_path: Path) -> None:
    """Neither ours nor root's."""
    mine = tmp_path / "agentctl/config.toml"
    mine.parent.mkdir()
    mine.write_text("")
    os.chown(mine, ORDINARY_UID, -1)
    with pytest.raises(UsageError, match=f"belongs to uid {ORDINARY_UID}"):
        files.find_user({"XDG_CONFIG_HOME": str(tmp_path)})


@needs(Capability.ROOT)
def test_a_projects_file_of_another_user_is_doubted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not that of the user who called sudo."""
    (tmp_path / "agentctl.toml").write_text("")
    os.chown(tmp_path / "agentctl.toml", ORDINARY_UID, -1)
    file = files.find_project(str(tmp_path), {})
    assert file is not None
    assert file.doubt == f"it belongs to uid {ORDINARY_UID}"
    monkeypatch.setenv("SUDO_UID", str(ORDINARY_UID))
    file = files.find_project(str(tmp_path), {})
    assert file is not None
    assert not file.doubt


def test_a_projects_file_that_everybody_can_write_is_doubted(tmp_path: Path) -> None:
    """Whoever wrote it."""
    (tmp_path / "agentctl.toml").write_text("")
    (tmp_path / "agentctl.toml").chmod(0o666)
    file = files.find_project(str(tmp_path), {})
    assert file is not None
    assert file.doubt == "everybody can write into it"


def test_a_directory_above_that_everybody_can_write_is_no_project(tmp_path: Path) -> None:
    """In /tmp, others could leave a file for us."""
    below = tmp_path / "shared/mine"
    below.mkdir(parents=True)
    (tmp_path / "shared/agentctl.toml").write_text("")
    assert files.find_project(str(below), {}) is not None
    (tmp_path / "shared").chmod(0o1777)
    assert files.find_project(str(below), {}) is None


def test_no_link_is_followed_and_nothing_but_a_file_is_read(tmp_path: Path) -> None:
    """A FIFO holds nobody up."""
    ours = tmp_path / "agentctl.toml"
    ours.symlink_to("/etc/passwd")
    assert "it is a symbolic link" in refusal_of(tmp_path)
    ours.unlink()
    os.mkfifo(ours)
    assert "it is not a file" in refusal_of(tmp_path)
    ours.unlink()
    ours.mkdir()
    assert "it is not a file" in refusal_of(tmp_path)
    ours.rmdir()
    (tmp_path / "real").write_text("[tool.agentctl]\n")
    (tmp_path / "pyproject.toml").symlink_to("real")
    assert "pyproject.toml is a symbolic link" in refusal_of(tmp_path)
    (tmp_path / "real").write_text("[tool]\n")
    assert files.find_project(str(tmp_path), {}) is None


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"#" * (files.MAX_BYTES + 1), "longer than 1 MiB"),
        (b"a = 1\nb = \xff", "agentctl.toml:2: not UTF-8"),
        (b"\n\na == 1", "agentctl.toml:3: Invalid value"),
        (b"a = " + b"[" * 100_000, "nested too deeply"),
        (b"a = " + b"1" * 5_000, "Exceeds the limit"),
        (b"\n" + b"a." * 400_000 + b"a = 1", "agentctl.toml:2: a key of more than 16 parts"),
        (b'"a" . ' * 170_000 + b"a = 1", "agentctl.toml:1: a key of more than 16 parts"),
        (b"x = {" + b"a." * 400_000 + b"a = 1}", "a key of more than 16 parts"),
    ],
    ids=["long", "latin", "broken", "nested", "digits", "dotted", "quoted", "inline"],
)
def test_a_hostile_file_is_an_error_of_one_line_and_soon(
    tmp_path: Path, data: bytes, told: str
) -> None:
    """For the dotted ones, tomllib itself takes all memory."""
    (tmp_path / "agentctl.toml").write_bytes(data)
    began = time.process_time()
    text = refusal_of(tmp_path)
    assert time.process_time() - began < 5
    assert told in text
    assert "\n" not in text
    assert len(text) < 400


def test_the_line_of_a_key_is_found() -> None:
    """In the table that it stands in; where it cannot be found, the file is named."""
    text = 'time = 1\n[profile.a]\ntime = 2\n[profile."b"]\n"time" = 3\n[profile.c.deep]\n'
    file = files.ConfigFile("/p/agentctl.toml", "./agentctl.toml", {}, text)
    assert file.at("", "time") == "./agentctl.toml:1"
    assert file.at("profile.a", "time") == "./agentctl.toml:3"
    assert file.at("profile.b", "time") == "./agentctl.toml:5"
    assert file.at("profile", "a") == "./agentctl.toml:2"
    assert file.at("", "net") == "./agentctl.toml"
    ours = msgspec.structs.replace(
        file, text="[tool.other]\nx = 1\n[tool.agentctl]\nx = 1", prefix="tool.agentctl."
    )
    assert ours.at("", "x") == "./agentctl.toml:4"
