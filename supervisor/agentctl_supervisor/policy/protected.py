"""Which of the names that other programs obey a run may not change (`obeyed_names`).

They are protected at the top of every directory that the run may write to, unless it is told
by name that it may change them (``--unprotect``).
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
"""Protected where it has settings for agentctl in it: what a run may, the next run's file says."""

_GIT: Final = ".git/"


def names(unprotect: Collection[str] = ()) -> tuple[str, ...]:
    """The protected names, without those that *unprotect* has, or has something above of."""
    return tuple(name for name in (*REASONS, CONFIGURATION) if not _is_freed(name, unprotect))


def names_in(directory: str, unprotect: Collection[str] = ()) -> dict[str, str]:
    """Return the protected names in a *directory* that a run may write to, each with its reason.

    They are relative to it, and need not be there.  In a git directory, as ``--rw REPO/.git``
    opens one for a linked worktree, they are the names that follow ``.git/`` elsewhere.
    """
    reasons = {name: REASONS.get(name, SETTINGS) for name in names(unprotect)}
    if not git_names.is_git_directory(directory):
        return reasons | of_git(directory, unprotect)
    if os.path.basename(directory) == ".git":
        reasons |= of_git(os.path.dirname(directory), unprotect)
    return {name.removeprefix(_GIT): why for name, why in reasons.items() if name.startswith(_GIT)}


def of_git(workspace: str, unprotect: Collection[str] = ()) -> dict[str, str]:
    """What is protected of the repository in *workspace* besides, each with the reason.

    Raises:
        UnreadableError: that cannot be known.
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
