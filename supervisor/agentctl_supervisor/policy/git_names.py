"""What git obeys in a repository, and what is called differently in each one.

Submodules and other working trees have hooks and settings of their own, and the settings may
name files in the workspace.  Only what is there is found.  A repository may be a run's work:
where there is more than can be read, the run is refused.
"""

import contextlib
import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from agentctl_supervisor.policy import git_config
from agentctl_supervisor.policy.links import lies_inside
from agentctl_supervisor.policy.untrusted_files import (
    UnreadableError,
    entries,
    is_directory,
    is_there,
    status,
    whole,
)

MOST: Final = 32
"""Submodules and working trees that are protected one by one: each costs a run three mounts."""

MODULES: Final = ".git/modules"
WORKTREES: Final = ".git/worktrees"
_OF_MODULE: Final = ("hooks", "config", "config.worktree", "commondir", "info/attributes")
_OF_WORKTREE: Final = ("config.worktree", "commondir")
_DEPTH: Final = 8
_ENTRIES: Final = 2000
_CONFIG_BYTES: Final = 1 << 20
_LINE_BYTES: Final = 1 << 14
_GITDIR: Final = "gitdir:"
_INCLUDED: Final = 32
_MEND: Final = "git config --list says what it is; --unprotect {} lets the run change it"
_EXECUTED: Final = {
    ("core", "hookspath"): "git executes them: core.hooksPath",
    ("core", "fsmonitor"): "git executes it: core.fsmonitor",
}


def is_git_directory(directory: str) -> bool:
    """Whether git takes *directory* itself for a repository: gitrepository-layout(5).

    Raises:
        UnreadableError: that cannot be known.
    """
    return is_there(os.path.join(directory, "HEAD")) and any(
        is_there(os.path.join(directory, name)) for name in ("objects", "commondir")
    )


class _Source(NamedTuple):
    """A file of settings.  ``trees``: the working trees that it is for; relative paths of hooks
    mean files in those.
    """

    file: str
    trees: tuple[str, ...]


def found(workspace: str, is_freed: Callable[[str], bool] = lambda _: False) -> dict[str, str]:
    """The names in the repository of *workspace*, relative to it, each with the reason.

    *is_freed*: names that the run may write to, so that nothing hangs on what they say.

    Raises:
        UnreadableError: what git obeys there cannot be known.
    """
    if is_freed(".git"):
        return {}
    if not is_directory(os.path.join(workspace, ".git")):
        sources = _behind_a_file(workspace)
        names = {}
    else:
        modules = [] if is_freed(MODULES) else _modules(workspace)
        worktrees = [] if is_freed(WORKTREES) else _children(workspace, WORKTREES)
        names = _of_submodules(modules) | _of_worktrees(worktrees)
        read = [name for name in modules if not is_freed(f"{name}/config")]
        sources = _sources(workspace, read, worktrees)
    if not sources:
        return {}
    sources += [_Source(file, (workspace,)) for file in _of_the_user()]
    names |= dict(_named(workspace, sources, is_freed))
    return {name: why for name, why in names.items() if is_there(os.path.join(workspace, name))}


def _of_submodules(directories: Sequence[str]) -> dict[str, str]:
    if len(directories) > MOST:
        return {MODULES: f"git executes what is in there; over {MOST} submodules"}
    return {
        f"{directory}/{name}": "git executes it, or what it names, in a submodule"
        for directory in directories
        for name in _OF_MODULE
    }


def _of_worktrees(directories: Sequence[str]) -> dict[str, str]:
    if len(directories) > MOST:
        return {WORKTREES: f"git obeys what is in there; over {MOST} working trees"}
    return {
        f"{directory}/{name}": "git obeys it in another working tree"
        for directory in directories
        for name in _OF_WORKTREE
    }


def _modules(workspace: str) -> list[str]:
    """Their git directories: a submodule's name may have slashes, and it submodules itself.

    Raises:
        UnreadableError: there are too many to read the settings of each.
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
            below = _children(workspace, directory)
        looked += len(below)
        if looked > _ENTRIES or depth > _DEPTH:
            raise _too_many(workspace, MODULES)
        pending += [(one, depth + 1) for one in below]
    return given


def _children(workspace: str, directory: str) -> list[str]:
    """The directories in *directory*, links left out.

    Raises:
        UnreadableError: it has too many of them, or of other things.
    """
    names: list[str] = []
    for number, entry in enumerate(entries(os.path.join(workspace, directory))):
        if number >= _ENTRIES:
            raise _too_many(workspace, directory)
        if entry.is_directory:
            names.append(f"{directory}/{entry.name}")
    return sorted(names)


def _too_many(workspace: str, directory: str) -> UnreadableError:
    top = WORKTREES if directory == WORKTREES else MODULES
    return UnreadableError(
        os.path.join(workspace, directory),
        f"there are more than {_ENTRIES} directories in it, or too deep ones",
        f"look, a run may have made them; --unprotect {top} lets the run change what git obeys",
    )


# --- which settings count -----------------------------------------------------


def _sources(workspace: str, modules: Sequence[str], worktrees: Sequence[str]) -> list[_Source]:
    """The settings of the repository that lies in *workspace*, and of all that belongs to it."""
    git = os.path.join(workspace, ".git")
    linked = [(name, _linked_tree(os.path.join(workspace, name))) for name in worktrees]
    everywhere = (workspace, *(tree for _, tree in linked if tree))
    found = [
        _Source(os.path.join(git, "config"), everywhere),
        _Source(os.path.join(git, "config.worktree"), (workspace,)),
    ]
    found += [
        _Source(os.path.join(workspace, name, "config.worktree"), (tree,))
        for name, tree in linked
        if tree
    ]
    for name in modules:
        directory = os.path.join(workspace, name)
        files = [os.path.join(directory, one) for one in ("config", "config.worktree")]
        tree = _tree_of_module(directory, files)
        found += [_Source(file, (tree,)) for file in files]
    return found


def _behind_a_file(workspace: str) -> list[_Source]:
    """The settings that count where ``.git`` is a file: in a submodule, or a linked worktree."""
    path = os.path.join(workspace, ".git")
    there = status(path, follow=True)
    if there is None or not stat.S_ISREG(there.st_mode):  # which git takes for none
        return []
    told = _line(path)
    if not told.startswith(_GITDIR):
        return []
    directory = os.path.normpath(os.path.join(workspace, told.removeprefix(_GITDIR).strip()))
    common = _line(os.path.join(directory, "commondir"))
    return [
        _Source(os.path.normpath(os.path.join(directory, common, "config")), (workspace,)),
        _Source(os.path.join(directory, "config.worktree"), (workspace,)),
    ]


def _linked_tree(directory: str) -> str:
    """The working tree of the *directory* in ``.git/worktrees``, or nothing: gitdir says it."""
    link = _line(os.path.join(directory, "gitdir"))
    return os.path.dirname(os.path.normpath(os.path.join(directory, link))) if link else ""


def _tree_of_module(directory: str, files: Sequence[str]) -> str:
    """The working tree of a submodule, as its settings say it; else git works in *directory*."""
    told = [
        setting.value
        for file in files
        for setting in _settings(file)
        if (setting.section, setting.key) == ("core", "worktree")
    ]
    return os.path.normpath(os.path.join(directory, told[-1] if told else ""))


def _of_the_user() -> Iterator[str]:
    """What counts in every repository.  No run reaches it, and git complains of what is wrong."""
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    for file in ("/etc/gitconfig", f"{config}/git/config", f"{home}/.gitconfig"):
        with contextlib.suppress(UnreadableError):
            list(_settings(file))
            yield file


def _line(file: str) -> str:
    """The one line of a small *file*; nothing if it is not there."""
    data = whole(file, _LINE_BYTES) or b""
    # No path has one: git ends there, or complains.
    return "" if b"\0" in data else os.fsdecode(data).rstrip("\n")


# --- what they name -----------------------------------------------------------


def _named(
    workspace: str, sources: Iterable[_Source], is_freed: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """What the settings of *sources* name of the workspace: hooks, and more settings.

    Raises:
        UnreadableError: it cannot be known what they name.
    """
    pending = [one for one in sources if not is_freed(os.path.relpath(one.file, workspace))]
    most = len(pending) + _INCLUDED
    known = {one.file for one in pending}
    for number, (file, trees) in enumerate(pending):
        if number > most:
            raise UnreadableError(file, f"it is one of more than {_INCLUDED} files of settings")
        for setting in _settings(file):
            value = os.path.expanduser(setting.value)
            why = _EXECUTED.get((setting.section, setting.key))
            is_include = setting.section in ("include", "includeif") and setting.key == "path"
            bases = trees if why else (os.path.dirname(file),) if is_include else ()
            for base in bases if value else ():
                path = os.path.normpath(os.path.join(base, value))
                if not lies_inside(path, workspace):
                    continue
                yield os.path.relpath(path, workspace), why or "git reads it as its config"
                # What a link leads to is not the repository's to say, and may lie anywhere.
                if is_include and path not in known and os.path.realpath(path) == path:
                    known.add(path)
                    pending.append(_Source(path, trees))


def _settings(file: str) -> Iterator[git_config.Setting]:
    data = whole(file, _CONFIG_BYTES) or b""
    try:
        if b"\0" in data:
            raise git_config.SyntaxFaultError("there is a NUL in it")
        yield from git_config.settings(os.fsdecode(data))
    except git_config.SyntaxFaultError as error:
        free = MODULES if f"/{MODULES}/" in file else ".git/config"
        raise UnreadableError(file, str(error), _MEND.format(free)) from None
