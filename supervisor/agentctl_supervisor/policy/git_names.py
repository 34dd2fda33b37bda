"""What git obeys in a repository, and what is called differently in each one.

Submodules and other working trees have hooks and settings of their own, and the settings may
name files in the workspace.  Only what is there is found, and only so much of it is looked at:
a repository may be a run's work.  Where there is more, all of it is found.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from agentctl_supervisor.policy import git_config
from agentctl_supervisor.policy.contents import (
    UnreadableError,
    entries,
    is_directory,
    is_there,
    whole,
)
from agentctl_supervisor.policy.links import lies_inside

MOST: Final = 32
"""Submodules and working trees that are looked at: each costs a run three mounts."""

MODULES: Final = ".git/modules"
WORKTREES: Final = ".git/worktrees"
_OF_MODULE: Final = ("hooks", "config", "config.worktree", "commondir", "info/attributes")
_OF_WORKTREE: Final = ("config.worktree", "commondir")
_DEPTH: Final = 8
_ENTRIES: Final = 2000
_CONFIG_BYTES: Final = 1 << 20
_CONFIGS: Final = (".git/config", ".git/config.worktree")
_INCLUDED: Final = 32
_MEND: Final = "git config --list says what it is; --unprotect .git/config lets the run change it"


def is_git_directory(directory: str) -> bool:
    """Whether git takes *directory* itself for a repository: gitrepository-layout(5).

    Raises:
        UnreadableError: that cannot be known.
    """
    return is_there(os.path.join(directory, "HEAD")) and any(
        is_there(os.path.join(directory, name)) for name in ("objects", "commondir")
    )


def found(workspace: str, is_freed: Callable[[str], bool] = lambda _: False) -> dict[str, str]:
    """The names in the repository of *workspace*, relative to it, each with the reason.

    *is_freed*: names that the run may write to, so that nothing hangs on what they say.

    Raises:
        UnreadableError: what git obeys there cannot be known.
    """
    if is_freed(".git") or not is_directory(os.path.join(workspace, ".git")):
        return {}
    names: dict[str, str] = {}
    if not is_freed(MODULES):
        names |= _of_submodules(workspace)
    if not is_freed(WORKTREES):
        names |= _of_worktrees(workspace)
    names |= dict(_named(workspace, is_freed))
    return {name: why for name, why in names.items() if is_there(os.path.join(workspace, name))}


def _of_submodules(workspace: str) -> dict[str, str]:
    try:
        return {
            f"{directory}/{name}": "git executes it, or what it names, in a submodule"
            for directory in _modules(workspace)
            for name in _OF_MODULE
        }
    except _TooManyError:
        return {MODULES: f"git executes what is in there; over {MOST} submodules, or too deep"}


def _of_worktrees(workspace: str) -> dict[str, str]:
    try:
        return {
            f"{directory}/{name}": "git obeys it in another working tree"
            for directory in _children(workspace, WORKTREES, MOST)
            for name in _OF_WORKTREE
        }
    except _TooManyError:
        return {WORKTREES: f"git obeys what is in there; over {MOST} working trees"}


class _TooManyError(Exception):
    """There is more than is looked at one by one."""


def _modules(workspace: str) -> list[str]:
    """Their git directories: a submodule's name may have slashes, and it submodules itself.

    Raises:
        _TooManyError
    """
    pending = deque([(MODULES, 0)])
    given: list[str] = []
    looked = 0
    while pending:
        directory, depth = pending.popleft()
        if is_there(os.path.join(workspace, directory, "HEAD"), follow=True):
            given.append(directory)
            below = [f"{directory}/modules"]
        else:
            below = _children(workspace, directory, _ENTRIES)
        looked += len(below)
        if len(given) > MOST or looked > _ENTRIES or depth > _DEPTH:
            raise _TooManyError
        pending += [(one, depth + 1) for one in below]
    return given


def _children(workspace: str, directory: str, most: int) -> list[str]:
    """The directories in *directory*, links left out.

    Raises:
        _TooManyError: *directory* has more than *most* of them, or other things.
    """
    names: list[str] = []
    for number, entry in enumerate(entries(os.path.join(workspace, directory))):
        if number >= most:
            raise _TooManyError
        if entry.is_directory:
            names.append(f"{directory}/{entry.name}")
    return sorted(names)


def _named(workspace: str, is_freed: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """What the repository's settings name of the workspace: hooks, and more settings.

    Raises:
        UnreadableError: it cannot be known what they name.
    """
    pending = [name for name in _CONFIGS if not is_freed(name)]
    for number, name in enumerate(pending):
        file = os.path.join(workspace, name)
        if number > _INCLUDED:
            raise UnreadableError(file, f"it is one of more than {_INCLUDED} files of settings")
        for setting in _settings(file):
            if (setting.section, setting.key) == ("core", "hookspath"):
                base, why = workspace, "git executes them: core.hooksPath"
            elif setting.section in ("include", "includeif") and setting.key == "path":
                base, why = os.path.dirname(file), "git reads it as its config"
            else:
                continue
            path = os.path.normpath(os.path.join(base, setting.value))
            if not lies_inside(path, workspace):
                continue
            named = os.path.relpath(path, workspace)
            yield named, why
            # What a link leads to is not the repository's to say, and may lie anywhere.
            if base is not workspace and named not in pending and os.path.realpath(path) == path:
                pending.append(named)


def _settings(file: str) -> Iterator[git_config.Setting]:
    data = whole(file, _CONFIG_BYTES)
    try:
        yield from git_config.settings(os.fsdecode(data or b""))
    except git_config.SyntaxFaultError as error:
        raise UnreadableError(file, str(error), _MEND) from None
