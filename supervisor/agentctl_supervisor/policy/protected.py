"""Names in a workspace that other programs execute or obey.

Whoever can write them decides what a person's shell, editor or git does next, outside of
every sandbox.  So a run may not change them unless it is told so by name (``--unprotect``).
Only what is obeyed without being asked for is in the list: a Makefile or a CI workflow is
run by somebody who means to.
"""

from collections.abc import Collection, Iterable
from typing import Final

from agentctl_protocol.spec import SpecError
from agentctl_supervisor.errors import UsageError
from agentctl_supervisor.guessing import closest
from agentctl_supervisor.policy import git_names
from agentctl_supervisor.policy.links import is_beneath

PROTECTED: Final = {
    ".git": "as a file it says where git finds its hooks",
    ".git/hooks": "git executes them",
    ".git/config": "git executes what it names: pagers, filters, monitors",
    ".git/config.worktree": "git reads it as its config",
    ".git/commondir": "it says where git finds its hooks and config",
    ".git/info/attributes": "it says which of the filters in its config git executes",
    ".gitmodules": "git fetches what it names",
    ".gitconfig": "git executes what it names",
    ".husky": "git hooks",
    ".pre-commit-config.yaml": "git hooks",
    ".bashrc": "shells execute it",
    ".bash_profile": "shells execute it",
    ".bash_login": "shells execute it",
    ".bash_logout": "shells execute it",
    ".bash_aliases": "shells execute it",
    ".profile": "shells execute it",
    ".zshrc": "shells execute it",
    ".zshenv": "shells execute it",
    ".zprofile": "shells execute it",
    ".zlogin": "shells execute it",
    ".envrc": "direnv executes it",
    ".ssh": "ssh executes what its config names, and trusts its keys",
    ".netrc": "programs send the passwords in it",
    ".npmrc": "npm executes what it names",
    ".yarnrc": "yarn executes what it names",
    ".yarnrc.yml": "yarn executes what it names",
    ".pypirc": "uploads go where it says",
    ".vimrc": "vim executes it",
    ".exrc": "vim executes it",
    ".nvim.lua": "neovim executes it",
    ".gdbinit": "gdb executes it",
    ".lldbinit": "lldb executes it",
    ".vscode": "the editor runs its tasks and uses its settings",
    ".idea": "the editor runs its tasks and uses its settings",
    ".devcontainer": "the editor runs its commands",
    ".claude": "coding agents run its hooks and follow it",
    ".codex": "coding agents run its hooks and follow it",
    ".cursor": "coding agents follow it",
    ".gemini": "coding agents follow it",
    ".mcp.json": "coding agents start the programs that it names",
    ".cursorrules": "coding agents follow it",
    "AGENTS.md": "coding agents follow it",
    "CLAUDE.md": "coding agents follow it",
    "GEMINI.md": "coding agents follow it",
    "sitecustomize.py": "Python executes it whenever it starts, where the directory is searched",
    "usercustomize.py": "Python executes it whenever it starts, where the directory is searched",
    "agentctl.toml": "agentctl takes its settings from it",
}
"""The names, relative to the workspace, each with the reason."""

CONFIGURATION: Final = "pyproject.toml"
"""Protected where it has settings for agentctl in it: what a run may, the next run's file says."""


def names(unprotect: Collection[str] = ()) -> tuple[str, ...]:
    """The protected names, without those that *unprotect* has, or has something above of."""
    return tuple(name for name in (*PROTECTED, CONFIGURATION) if not _is_freed(name, unprotect))


def of_git(workspace: str, unprotect: Collection[str] = ()) -> dict[str, str]:
    """What is protected of the repository in *workspace* besides, each with the reason.

    Raises:
        UnreadableError: that cannot be known.
    """
    found = git_names.found(workspace, lambda name: _is_freed(name, unprotect))
    return {
        name: why
        for name, why in found.items()
        if name not in PROTECTED and not _is_freed(name, unprotect)
    }


def _is_freed(name: str, unprotect: Iterable[str]) -> bool:
    return any(is_beneath(name, free.strip("/")) for free in unprotect)


def reason(name: str) -> str:
    """Why *name* is protected, in a few words."""
    return PROTECTED.get(name, "agentctl takes its settings from it")


def has_settings(data: bytes) -> bool:
    """Whether *data*, of `CONFIGURATION`, has settings for agentctl in it, however written.

    What cannot be parsed may have them, once it can be.
    """
    if b"agentctl" not in data:
        return False
    # Most runs are in a project that has none.
    from agentctl_supervisor.config import files

    try:
        tool = files.parse(data.decode(), CONFIGURATION).get("tool")
    except (UsageError, UnicodeDecodeError):
        return True
    return isinstance(tool, dict) and "agentctl" in tool


def check(unprotect: Iterable[str]) -> None:
    """See that every name of *unprotect* is, or has beneath it, a protected one.

    Raises:
        SpecError: one is not; with the one that was probably meant.
    """
    for name in unprotect:
        if any(is_beneath(name.strip("/"), at) for at in (git_names.MODULES, git_names.WORKTREES)):
            continue
        if len(names((name,))) == len(names()):
            close = closest(name, names())
            raise SpecError(
                f"nothing protected is called {name[:80]!r}",
                f"did you mean {close}?" if close else "agentctl run --explain lists the names",
            )
