"""Reading what an agent named as its product, though it may have named anything."""

import os
from pathlib import Path

import pytest

from agentctl_supervisor.filesystem.open_beneath import open_root
from agentctl_supervisor.workspace import artifacts
from agentctl_supervisor.workspace.artifacts import Refused, examine, open_artifact, read_small


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    (directory / "sub").mkdir(parents=True)
    (directory / "sub/file").write_bytes(b"content")
    (tmp_path / "secret").write_text("secret")
    return directory


def roots(workspace: Path, *more: Path) -> tuple[bytes, ...]:
    return tuple(os.fsencode(path) for path in (workspace, *more))


def refusal(workspace: Path, path: str) -> str:
    (told,) = examine([path], roots(workspace))
    with pytest.raises(Refused) as error:
        open_artifact(path, roots(workspace))
    assert str(error.value) == told.refused
    return told.refused


@pytest.mark.parametrize("path", ["sub/file", "{}/sub/file", "./sub//file", "sub/../sub/file"])
def test_a_file_is_read_by_any_of_its_paths(workspace: Path, path: str) -> None:
    """Relative to the workspace, or absolute."""
    fd = open_artifact(path.format(workspace), roots(workspace))

    with open(fd, "rb") as file:
        assert file.read() == b"content"
    assert examine([path.format(workspace)], roots(workspace))[0].bytes == 7


def test_a_file_beneath_another_writable_path_is_read(workspace: Path, tmp_path: Path) -> None:
    """What ``--rw`` added counts, too."""
    more = tmp_path / "more"
    more.mkdir()
    (more / "file").write_text("x")

    os.close(open_artifact(f"{more}/file", roots(workspace, more)))


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../secret", "outside of what the run could write to"),
        ("/etc/passwd", "outside of what the run could write to"),
        ("sub/../../secret", "outside of what the run could write to"),
        ("nothing", "not there"),
        ("sub/file/below", "not to be had: Not a directory"),
        ("sub", "a directory"),
        (".", "a directory"),
        ("", "no path"),
        ("a\0b", "no path"),
        ("\ud800", "no path"),
    ],
)
def test_what_is_no_file_of_the_run_is_refused(workspace: Path, path: str, why: str) -> None:
    """Outside, missing, or no path at all: refused, with the reason."""
    assert refusal(workspace, path) == why


def test_links_are_refused(workspace: Path, tmp_path: Path) -> None:
    """As the file, in the middle of the path, and where they lead inside after all."""
    (workspace / "link").symlink_to(tmp_path / "secret")
    (workspace / "directory").symlink_to(tmp_path)
    (workspace / "inside").symlink_to("sub")

    assert refusal(workspace, "link") == "a symbolic link"
    assert refusal(workspace, "directory/secret") == "behind a symbolic link"
    assert refusal(workspace, "inside/file") == "behind a symbolic link"


def test_a_fifo_keeps_nobody_waiting(workspace: Path) -> None:
    """Nor is it opened: a writer on the other end would notice, or feed us."""
    os.mkfifo(workspace / "fifo")

    assert refusal(workspace, "fifo") == "a FIFO"


def test_a_program_that_changes_its_user_is_refused(workspace: Path) -> None:
    """A copy with its bits would be a trap, and one without them not the same file."""
    (workspace / "program").write_text("")
    (workspace / "program").chmod(0o4755)

    assert refusal(workspace, "program") == "a set-uid or set-gid program"


def test_a_sparse_file_counts_in_full(workspace: Path) -> None:
    """It takes no room where it is, but would where it is copied to."""
    with (workspace / "sparse").open("wb") as file:
        file.truncate(1 << 40)

    assert refusal(workspace, "sparse") == "over 64 MiB"


def test_number_and_total_are_bounded(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one too many is refused with the reason, and smaller ones after it still fit."""
    monkeypatch.setattr(artifacts, "MAX_FILES", 3)
    monkeypatch.setattr(artifacts, "MAX_TOTAL_BYTES", 100)
    for name, size in (("a", 60), ("b", 60), ("c", 10), ("d", 10), ("e", 1)):
        (workspace / name).write_bytes(b"x" * size)

    told = examine(["a", "a", "b", "c", "d", "e"], roots(workspace))

    assert [artifact.path for artifact in told if not artifact.refused] == ["a", "c", "d"]
    assert [artifact.refused for artifact in told if artifact.refused] == [
        "more than what is left of 0 MiB for all",
        "one more than 3 files",
    ]


def test_a_run_without_a_workspace_has_no_artifacts() -> None:
    """At basic nothing bounds where it wrote, so nothing says what is its own."""
    (told,) = examine(["file"], ())

    assert told.refused == "not in a workspace: the run had none"


def test_a_small_file_is_read_whole_or_not(workspace: Path) -> None:
    """Ours to judge: a regular file within its bound, and nothing that could block."""
    os.mkfifo(workspace / "fifo")
    root = open_root(os.fsencode(workspace))

    assert read_small(root, b"sub/file", 7) == b"content"
    assert read_small(root, b"sub/file", 6) is None
    assert read_small(root, b"fifo", 100) is None
    assert read_small(root, b"sub", 100) is None
    os.close(root)
