"""Which directory is the workspace: the one place that a run may write to, and keeps."""

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
    """The directory ``path``, and where in it the run begins: ``cwd``.

    ``private``: a fresh one, because of ``why`` (which completes "because DIRECTORY is").
    ``hint``: what to do about that, if anything can be done.
    """

    path: str
    cwd: str
    private: bool = False
    why: str = ""
    hint: str = ""

    @property
    def told(self) -> str:
        """Its path for records."""
        return to_text(self.path)


@dataclass(frozen=True)
class Candidate:
    """A directory that was asked for, or is the working directory: what is known of it.

    ``real``: without links.  ``others``: its other names.  ``holds``: those of what is mounted
    in it.
    ``missing``, ``writable``: what the kernel says.
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
    """The workspace: *asked*, else *cwd*, else a *fresh* one where *cwd* must not be given away.

    Begins in *cwd* where that is in the workspace.

    Raises:
        SpecError: *asked* is not there, is no directory, cannot be written to, or is too much.
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
    """As `Reserved.why_not`, with the directories that are too much."""
    if why := places.why_no_workspace(directory.real, directory.others):
        return Refusal(why)
    for name in directory.holds:
        if why := places.why_too_much(name):
            return Refusal(f"around a mount of {cut_short(name)}: {why}")
    return reserved.why_not(directory.real, directory.others)
