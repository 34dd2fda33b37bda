"""Choose the workspace: the directory that a run may write to and whose content stays."""

import os
from dataclasses import dataclass

from agentctl_protocol.os_names import to_text
from agentctl_protocol.shell_words import shell_word
from agentctl_protocol.spec import SpecError
from agentctl_supervisor.policy.links import cut_short, is_beneath
from agentctl_supervisor.policy.never_writable import Refusal, Reserved
from agentctl_supervisor.policy.path_aliases import OtherNames
from agentctl_supervisor.policy.unsuitable_directories import Places


@dataclass(frozen=True)
class Workspace:
    """The workspace of a run.

    ``path``: its directory.  ``cwd``: the directory in it that the run starts in.
    ``private``: True if it is a fresh one.
    ``why``: the reason for a fresh one, which completes "because DIRECTORY is".
    ``hint``: advice for the user, if there is any.
    """

    path: str
    cwd: str
    private: bool = False
    why: str = ""
    hint: str = ""

    @property
    def told(self) -> str:
        """The path in text form, for records."""
        return to_text(self.path)


@dataclass(frozen=True)
class Candidate:
    """The facts about a directory that was asked for, or about the working directory.

    ``real``: the path without links.  ``others``: the other names of the directory.
    ``holds``: the other names of the mounts in it.
    ``missing``, ``writable``: the answers of the kernel.
    """

    shown: str
    real: str
    others: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    is_directory: bool = True
    missing: bool = False
    writable: bool = True


def look(path: str, names: OtherNames) -> Candidate:
    """Look at the absolute *path*."""
    real = os.path.realpath(path)
    return Candidate(
        shown=cut_short(path),
        real=real,
        others=names.of(real),
        holds=names.held_in(real),
        is_directory=os.path.isdir(real),
        missing=not os.path.exists(real),
        writable=os.access(real, os.W_OK | os.X_OK),
    )


def choose(
    asked: Candidate | None,
    cwd: Candidate,
    fresh: str,
    *,
    places: Places,
    reserved: Reserved,
) -> Workspace:
    """Return the workspace: *asked*, else *cwd*, else *fresh* if a run must not get *cwd*.

    The run starts in *cwd* if that is in the workspace.

    Raises:
        SpecError: *asked* does not exist, is no directory, is not writable, or is too much.
    """
    if asked is None:
        why, hint = _why_not(cwd, places, reserved)
        if not why and not cwd.writable:
            why = "not yours to write to"
        return Workspace(fresh, fresh, True, why, hint) if why else _of(cwd, cwd)
    if asked.missing:
        raise SpecError(
            f"--workspace {asked.shown} is not there", f"mkdir -p {shell_word(asked.real)}"
        )
    if not asked.is_directory:
        raise SpecError(f"--workspace {asked.shown} is not a directory", "name its directory")
    why, hint = _why_not(asked, places, reserved)
    if why:
        raise SpecError(
            f"--workspace {asked.shown} is {why}",
            hint
            or "name a directory made for the run, or leave it out in such a place for a fresh one",
        )
    if not asked.writable:
        raise SpecError(
            f"--workspace {asked.shown} cannot be written to", f"ls -ld {shell_word(asked.real)}"
        )
    return _of(asked, cwd)


def _of(directory: Candidate, cwd: Candidate) -> Workspace:
    inside = cwd.real if is_beneath(cwd.real, directory.real) else directory.real
    return Workspace(directory.real, inside)


def _why_not(directory: Candidate, places: Places, reserved: Reserved) -> Refusal:
    """Return the refusal of `Reserved.why_not`, and refuse directories that are too much."""
    if why := places.why_no_workspace(directory.real, directory.others):
        return Refusal(why)
    for name in directory.holds:
        if why := places.why_too_much(name):
            return Refusal(f"around a mount of {cut_short(name)}: {why}")
    return reserved.why_not(directory.real, directory.others)
