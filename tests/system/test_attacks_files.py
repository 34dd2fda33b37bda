"""Group A: files.  What a run was not given it neither sees nor changes."""

import contextlib
import ctypes
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from agentctl_testkit.attack_plant import Plant
from agentctl_testkit.attack_table import PAGE, rows_of
from agentctl_testkit.attacks import (
    ROOT,
    STANDARD,
    STRICT,
    USER,
    AttackRange,
    Harmless,
    Probe,
    attack_files,
    limits_of_standard,
    params,
)
from agentctl_testkit.capabilities import Capability

_PROTECTED: Final = {
    ".git/HEAD": "ref: refs/heads/main\n",
    ".git/config": "[core]\n",
    ".git/hooks/pre-push": "#!/bin/sh\n",
    ".bashrc": "true\n",
    ".vscode/tasks.json": "{}\n",
    ".claude/settings.json": "{}\n",
    ".mcp.json": "{}\n",
}


def _hard_link(plant: Plant) -> Mapping[str, Any]:
    os.link(plant.victim, plant.workspace / "planted")
    return {}


def _links_for_protected_names(plant: Plant) -> Mapping[str, Any]:
    (plant.outside / "hooks").mkdir()
    plant.own(plant.outside / "hooks")
    (plant.workspace / ".git").symlink_to(plant.outside)
    (plant.workspace / ".bashrc").symlink_to(plant.outside / "rc")
    return {}


def _handle(plant: Plant) -> Mapping[str, Any]:
    libc = ctypes.CDLL(None, use_errno=True)
    room = 128
    handle = ctypes.create_string_buffer(room.to_bytes(4, "little"), 8 + room)
    mount = ctypes.c_int()
    assert libc.name_to_handle_at(-100, bytes(plant.secret), handle, ctypes.byref(mount), 0) == 0
    size = int.from_bytes(handle.raw[:4], "little")
    kind = int.from_bytes(handle.raw[4:8], "little", signed=True)
    return {"handle": (kind, handle.raw[8 : 8 + size].hex())}


def _devices(plant: Plant) -> Mapping[str, Any]:
    if os.geteuid() == 0:
        path = plant.workspace / "character"
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
        plant.own(path)
    return {}


def _repository(plant: Plant) -> Mapping[str, Any]:
    for name, text in _PROTECTED.items():
        path = plant.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for made in (path.parent, path):
            plant.own(made)
    plant.own(plant.workspace / ".git")
    return {}


def _changed_names(plant: Plant) -> Sequence[str]:
    """Protected names that are not as they were, and what was left beside them."""
    changed = []
    for name, text in _PROTECTED.items():
        path = plant.workspace / name
        if not path.is_file() or path.is_symlink() or path.read_text() != text:
            changed.append(f"{name} was changed")
    known = {name.split("/")[0] for name in _PROTECTED} | {"replacement", "alias"}
    left = {path.name for path in plant.workspace.iterdir()} - known
    hooks = {path.name for path in (plant.workspace / ".git/hooks").glob("*")} - {"pre-push"}
    return [*changed, *(f"{name} was left" for name in sorted(left | hooks))]


def _opened_by_git(plant: Plant) -> Mapping[str, Any]:
    (plant.workspace / "open").touch()
    plant.own(plant.workspace / "open")
    return _repository(plant)


def _own_code(plant: Plant) -> Mapping[str, Any]:
    return {"agentctl": str(plant.caller.agentctl)}


def _setuid_files(plant: Plant) -> Sequence[str]:
    return [
        f"{path.name} has mode {path.lstat().st_mode:o}"
        for path in plant.workspace.iterdir()
        if path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    ]


def _remove_deep(plant: Plant) -> Sequence[str]:
    # Deeper than a path can name: shutil.rmtree goes by descriptors, but by recursion too.
    top = os.open(plant.workspace, os.O_RDONLY | os.O_DIRECTORY)
    name = "d" * 100
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, top)
        levels = [top]
        with contextlib.suppress(FileNotFoundError):
            while True:
                levels.append(os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=levels[-1]))
                stack.callback(os.close, levels[-1])
        for level in reversed(levels[:-1]):
            os.rmdir(name, dir_fd=level)
    return []


_SPECIALS: Final = tuple(
    Harmless(variant, "the workspace is the run's to fill; the host opens and follows nothing")
    for variant in (
        *("symlink", "symlink to a directory", "symlink loop", "sparse file"),
        *("names that are no text", "a path longer than PATH_MAX"),
    )
)

_METADATA: Final = "Landlock has no right for metadata"
_NO_EXCEPTIONS: Final = (
    "Landlock takes nothing out of a directory that is given; the report says what was exposed"
)
_CHANGES_OF_NAMES: Final = (
    *("new hook", "old hook", ".git/config", ".git/config, replaced", ".git/config, exchanged"),
    *(".git/config, linked", ".bashrc", ".bashrc, removed", ".vscode/tasks.json"),
    *(".claude/settings.json", ".mcp.json", "hooks, renamed", ".git, renamed"),
)

PROBES: Final = (
    Probe("a01_read_planted_secret"),
    Probe("a02_write_outside", seen=True),
    Probe(
        "a03_change_metadata",
        seen=True,
        harmless=(
            *limits_of_standard(
                f"{_METADATA}; it reaches what belongs to the user",
                *("chmod", "fchmodat", "chmod of a descriptor", "chgrp", "utime"),
                "chmod of the directory",
                callers=(USER,),
                harms=True,
            ),
            *limits_of_standard(
                f"{_METADATA}; it reaches what the user may write to, as root every file",
                "touch",
                harms=True,
            ),
        ),
    ),
    Probe(
        "a03_read_metadata",
        harmless=(
            *limits_of_standard(
                f"{_METADATA}; content is not to be had",
                *("stat", "O_PATH", "chdir", "listxattr", "statvfs"),
            ),
            *limits_of_standard(
                f"{_METADATA}; content is not to be had", "access", callers=(USER,)
            ),
        ),
    ),
    Probe("a04_follow_symlink", seen=True),
    Probe("a05_hard_link", seen=True),
    Probe(
        "a05_planted_hard_link",
        plant=_hard_link,
        harmless=(
            Harmless("read", "it was in the workspace before, and no run can put one there"),
        ),
    ),
    Probe("a06_rename", seen=True),
    Probe("a07_linked_protected_name", plant=_links_for_protected_names, seen=True),
    Probe("a08_spell_it_otherwise"),
    Probe("a09_leave_the_root", needs=(Capability.ROOT,), plant=_handle),
    Probe("a10_leave_setuid", check=_setuid_files, seen=True),
    Probe("a10_leave_specials", check=_remove_deep, harmless=_SPECIALS),
    Probe("a11_fill_memory_file_systems", levels=(STRICT,)),
    Probe("a12_device_nodes", needs=(Capability.ROOT,)),
    Probe(
        "a12_planted_device",
        needs=(Capability.ROOT,),
        plant=_devices,
        harmless=(
            Harmless(
                "character",
                "it was in the workspace before, and no run can make one",
                (STANDARD,),
                (ROOT,),
            ),
        ),
    ),
    Probe(
        "a13_protected_names",
        plant=_repository,
        check=_changed_names,
        seen=True,
        harmless=(
            *limits_of_standard(_NO_EXCEPTIONS, *_CHANGES_OF_NAMES, harms=True),
            *limits_of_standard(_NO_EXCEPTIONS, "old hook's mode", callers=(USER,)),
        ),
    ),
    Probe(
        "a14_watch_outside",
        harmless=limits_of_standard("Landlock has no right for being told of changes", "inotify"),
    ),
    Probe("a16_hold_up_openers", plant=_opened_by_git),
    Probe("a15_own_code", needs=(Capability.ROOT,), plant=_own_code),
)


@pytest.mark.parametrize("probe", params(PROBES))
def test_attack_on_files(probe: Probe, attack_range: AttackRange) -> None:
    """It works outside, and does not inside; the host is as it was."""
    attack_range.check(probe)


def test_every_attack_on_files_is_tried() -> None:
    """A file in the directory that no list names would prove nothing."""
    assert attack_files("a") == {probe.name for probe in PROBES}


def test_the_table_has_no_row_of_an_attack_that_is_gone() -> None:
    """The other way round, each attack's own test looks for its row."""
    assert set(rows_of(PAGE.read_text())) <= attack_files(*"abcdef")
