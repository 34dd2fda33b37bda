"""Choose the names that a run may not change, of those that other programs obey (`obeyed_names`).

The names are protected at the top of every directory that the run may write to, except those that
``--unprotect`` names.
"""

import os
from collections.abc import Collection, Iterable
from typing import Final

from agentctl_protocol.spec import SpecError
from agentctl_supervisor.errors import UsageError
from agentctl_supervisor.policy import git_names
from agentctl_supervisor.policy.links import is_beneath
from agentctl_supervisor.policy.obeyed_names import REASONS, SETTINGS
from agentctl_supervisor.text.suggestions import closest

CONFIGURATION: Final = "pyproject.toml"
"""Protected if it has settings for agentctl, because these decide what the next run may do."""

_GIT: Final = ".git/"


def names(unprotect: Collection[str] = ()) -> tuple[str, ...]:
    """Return the protected names, without those in *unprotect* or beneath a path in it."""
    return tuple(name for name in (*REASONS, CONFIGURATION) if not _is_freed(name, unprotect))


def names_in(directory: str, unprotect: Collection[str] = ()) -> dict[str, str]:
    """Return the protected names in a *directory* that a run may write to, each with its reason.

    The names are relative to *directory* and need not exist.  In a git directory the names are
    those that follow ``.git/`` elsewhere.  Example: ``--rw REPO/.git`` for a linked worktree.
    """
    reasons = {name: REASONS.get(name, SETTINGS) for name in names(unprotect)}
    if not git_names.is_git_directory(directory):
        return reasons | of_git(directory, unprotect)
    if os.path.basename(directory) == ".git":
        reasons |= of_git(os.path.dirname(directory), unprotect)
    return {name.removeprefix(_GIT): why for name, why in reasons.items() if name.startswith(_GIT)}


def of_git(workspace: str, unprotect: Collection[str] = ()) -> dict[str, str]:
    """Return the further protected names of the repository in *workspace*, each with the reason.

    Raises:
        UnreadableError: a file that git obeys cannot be read.
    """
    found = git_names.found(workspace, lambda name: _is_freed(name, unprotect))
    return {
        name: why
        for name, why in found.items()
        if name not in REASONS and not _is_freed(name, unprotect)
    }


def _is_freed(name: str, unprotect: Iterable[str]) -> bool:
    return any(is_beneath(name, free.strip("/")) for free in unprotect)


def has_settings(data: bytes) -> bool:
    """Return whether *data*, the content of `CONFIGURATION`, has settings for agentctl.

    The result is True for a file that cannot be parsed: it may have settings after a repair.
    """
    if b"agentctl" not in data:
        return False
    # Imported late, since most projects have no settings for agentctl.
    from agentctl_supervisor.config import files

    try:
        tool = files.parse(data.decode(), CONFIGURATION).get("tool")
    except (UsageError, UnicodeDecodeError):
        return True
    return isinstance(tool, dict) and "agentctl" in tool


def check(unprotect: Iterable[str]) -> None:
    """Check that every name in *unprotect* is a protected name or lies above one.

    Raises:
        SpecError: a name is neither.  The hint has the closest protected name.
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
