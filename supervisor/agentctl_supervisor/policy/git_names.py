"""Find the files that git obeys in a repository and whose names differ between repositories.

Submodules and other working trees have their own hooks and settings, and the settings may name
files in the workspace.  Only files that exist are found.  An earlier run may have made the
repository: if it has more than can be read, the new run is refused.
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
"""The most submodules or working trees that are protected one by one; each costs three mounts."""

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
    """Return whether git takes *directory* itself for a repository: gitrepository-layout(5).

    Raises:
        UnreadableError: *directory* cannot be examined.
    """
    return is_there(os.path.join(directory, "HEAD")) and any(
        is_there(os.path.join(directory, name)) for name in ("objects", "commondir")
    )


class _Source(NamedTuple):
    """A settings file.

    ``trees``: the working trees that the settings are for.  Relative paths of hooks start there.
    """

    file: str
    trees: tuple[str, ...]


def found(workspace: str, is_freed: Callable[[str], bool] = lambda _: False) -> dict[str, str]:
    """Return the names in the repository of *workspace*, relative to it, each with the reason.

    *is_freed*: tells whether the run may write to a name; such a file is not read.

    Raises:
        UnreadableError: a file that git obeys cannot be read.
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
    """Return the git directories of all submodules.

    The name of a submodule may have slashes, and a submodule may have submodules itself.

    Raises:
        UnreadableError: there are too many of them, or they are nested too deeply.
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
    """Return the directories in *directory*, without links.

    Raises:
        UnreadableError: it has too many entries.
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
    """Return the settings files of the repository in *workspace*, its submodules and worktrees."""
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
    """Return the settings files if ``.git`` is a file: in a submodule or a linked worktree."""
    path = os.path.join(workspace, ".git")
    there = status(path, follow=True)
    if there is None or not stat.S_ISREG(there.st_mode):  # no repository for git
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
    """Return the working tree of *directory* in ``.git/worktrees``, from its file ``gitdir``.

    The result is empty if that file does not exist.
    """
    link = _line(os.path.join(directory, "gitdir"))
    return os.path.dirname(os.path.normpath(os.path.join(directory, link))) if link else ""


def _tree_of_module(directory: str, files: Sequence[str]) -> str:
    """Return the working tree of a submodule from its settings, else *directory*, as git does."""
    told = [
        setting.value
        for file in files
        for setting in _settings(file)
        if (setting.section, setting.key) == ("core", "worktree")
    ]
    return os.path.normpath(os.path.join(directory, told[-1] if told else ""))


def _of_the_user() -> Iterator[str]:
    """Yield the settings files that count in every repository: the system's and the user's.

    No run can change them.  A faulty one is left out, since git itself reports its errors.
    """
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    for file in ("/etc/gitconfig", f"{config}/git/config", f"{home}/.gitconfig"):
        with contextlib.suppress(UnreadableError):
            list(_settings(file))
            yield file


def _line(file: str) -> str:
    """Return the one line of a small *file*; empty if the file does not exist or has a NUL."""
    data = whole(file, _LINE_BYTES) or b""
    # No path can have a NUL: git stops there, or reports an error.
    return "" if b"\0" in data else os.fsdecode(data).rstrip("\n")


# --- what they name -----------------------------------------------------------


def _named(
    workspace: str, sources: Iterable[_Source], is_freed: Callable[[str], bool]
) -> Iterator[tuple[str, str]]:
    """Yield the files of the workspace that the settings name: hooks, and more settings files.

    Raises:
        UnreadableError: the settings cannot be read, or they include too many files.
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
                # A link is not followed: its target is not part of the repository.
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
