"""What git obeys in a repository, and what is called differently in each one.

Submodules and other working trees have hooks and settings of their own, and the settings may
name files in the workspace.  Only what is there is found, and only so much of it: a
repository may be a run's work.
"""

import os
import re
from collections.abc import Iterator
from typing import Final

from agentctl_supervisor.policy.contents import beginning
from agentctl_supervisor.policy.links import lies_inside

MOST: Final = 32
"""Submodules and working trees that are looked at: each costs a run three mounts."""

MODULES: Final = ".git/modules"
WORKTREES: Final = ".git/worktrees"
_OF_MODULE: Final = ("hooks", "config", "config.worktree", "commondir", "info/attributes")
_OF_WORKTREE: Final = ("config.worktree", "commondir")
_DEPTH: Final = 8
_ENTRIES: Final = 2000
_CONFIG_BYTES: Final = 1 << 16
_SECTION: Final = re.compile(r"\s*\[\s*([\w.-]+)[^\]\n]*\]")
_SETTING: Final = re.compile(r"\s*([\w-]+)\s*=\s*(.*)")


def is_git_directory(directory: str) -> bool:
    """Whether git takes *directory* itself for a repository: gitrepository-layout(5)."""
    return os.path.lexists(os.path.join(directory, "HEAD")) and any(
        os.path.lexists(os.path.join(directory, name)) for name in ("objects", "commondir")
    )


def found(workspace: str) -> dict[str, str]:
    """The names in the repository of *workspace*, relative to it, each with the reason."""
    if not os.path.isdir(os.path.join(workspace, ".git")):
        return {}
    names: dict[str, str] = {}
    for directory in _modules(workspace):
        for name in _OF_MODULE:
            names[f"{directory}/{name}"] = "git executes it, or what it names, in a submodule"
    for directory in _children(workspace, WORKTREES)[:MOST]:
        for name in _OF_WORKTREE:
            names[f"{directory}/{name}"] = "git obeys it in another working tree"
    names |= dict(_named(workspace))
    return {
        name: why for name, why in names.items() if os.path.lexists(os.path.join(workspace, name))
    }


def _modules(workspace: str) -> Iterator[str]:
    """Their git directories: a submodule's name may have slashes, and it submodules itself."""
    pending = [(MODULES, 0)]
    looked = given = 0
    while pending:
        directory, depth = pending.pop(0)
        if os.path.isfile(os.path.join(workspace, directory, "HEAD")):
            yield directory
            given += 1
            below = [f"{directory}/modules"]
        else:
            below = _children(workspace, directory)
        looked += len(below)
        if given >= MOST or looked > _ENTRIES:
            return
        if depth < _DEPTH:
            pending += [(one, depth + 1) for one in below]


def _children(workspace: str, directory: str) -> list[str]:
    """The directories in *directory*, links left out."""
    try:
        with os.scandir(os.path.join(workspace, directory)) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [f"{directory}/{name}" for name in sorted(names)[:_ENTRIES]]


def _named(workspace: str) -> Iterator[tuple[str, str]]:
    """What the repository's settings name of the workspace: hooks, and more settings."""
    data = beginning(os.path.join(workspace, ".git/config"), _CONFIG_BYTES) or b""
    section = ""
    for line in os.fsdecode(data).splitlines():
        header = _SECTION.match(line)
        if header:
            section = header[1].lower()
        setting = _SETTING.match(line, header.end() if header else 0)
        if setting is None:
            continue
        what, value = setting[1].lower(), _value(setting[2])
        if (section, what) == ("core", "hookspath"):
            base, why = workspace, "git executes them: core.hooksPath"
        elif section in ("include", "includeif") and what == "path":
            base, why = os.path.join(workspace, ".git"), "git reads it as its config"
        else:
            continue
        path = os.path.normpath(os.path.join(base, value))
        if lies_inside(path, workspace):
            yield os.path.relpath(path, workspace), why


def _value(text: str) -> str:
    if text.startswith('"'):
        return text[1:].partition('"')[0]
    return re.split(r"\s*[#;]", text, maxsplit=1)[0].strip()
