"""No file that a run made or changed is setuid afterwards; others stay as they were."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from agentctl_supervisor.filesystem.open_beneath import open_root
from agentctl_supervisor.workspace.changes import Bounds, Walk
from agentctl_supervisor.workspace.clock import beginning, since_ns
from agentctl_supervisor.workspace.setuid_bits import TakingOff

MODES = (0o4755, 0o2755, 0o6711)


def made(path: Path, mode: int = 0o4755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(mode)
    return path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def look(workspace: Path, change: Callable[[], object]) -> TakingOff:
    """What is done to *workspace* by a run that does no more than *change*."""
    since = since_ns(beginning())
    change()
    taking_off = TakingOff(since)
    root = open_root(os.fsencode(workspace))
    try:
        Walk(since, Bounds(), on_entry=taking_off.on_entry).run(root)
    finally:
        os.close(root)
    return taking_off


@pytest.mark.parametrize("mode", MODES)
def test_what_the_run_made_loses_the_bits_and_nothing_else(tmp_path: Path, mode: int) -> None:
    """At any depth."""
    file = tmp_path / "d/e/file"

    look(tmp_path, lambda: made(file, mode))

    assert mode_of(file) == mode & 0o777


def test_what_the_run_did_not_change_keeps_them(tmp_path: Path) -> None:
    """A setuid program that somebody has in a workspace is still one afterwards."""
    file = made(tmp_path / "file")
    changed = file.lstat().st_ctime_ns
    while beginning().coarse_ns <= changed:
        pass  # a tick of the kernel's clock

    look(tmp_path, lambda: None)

    assert mode_of(file) == 0o4755


def test_directories_keep_them(tmp_path: Path) -> None:
    """Setgid on a directory is how people share one."""
    directory = tmp_path / "shared"

    def share() -> None:
        directory.mkdir()
        directory.chmod(0o2775)

    look(tmp_path, share)

    assert mode_of(directory) == 0o2775


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """What it leads to, outside, is nobody's business."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    outside = tmp_path / "outside"

    def link() -> None:
        made(outside)
        (workspace / "link").symlink_to(outside)

    look(workspace, link)

    assert mode_of(outside) == 0o4755


def test_another_file_in_its_place_is_looked_at_again(tmp_path: Path) -> None:
    """What is changed is what was found by the handle, not what the list said."""
    file = made(tmp_path / "file")
    found = file.lstat()
    file.unlink()
    file.symlink_to(made(tmp_path / "victim"))
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        TakingOff(0).on_entry(directory, "file", found)
    finally:
        os.close(directory)

    assert mode_of(tmp_path / "victim") == 0o4755


def test_who_listens_too_is_told(tmp_path: Path) -> None:
    """Of every entry, whether it has the bits or not."""
    told: list[str] = []
    made(tmp_path / "file")
    made(tmp_path / "plain", 0o644)
    directory = os.open(tmp_path, os.O_RDONLY)
    taking_off = TakingOff(0, lambda _directory, name, _found: told.append(name))
    try:
        for entry in os.scandir(directory):
            taking_off.on_entry(directory, entry.name, entry.stat(follow_symlinks=False))
    finally:
        os.close(directory)

    assert sorted(told) == ["file", "plain"]
