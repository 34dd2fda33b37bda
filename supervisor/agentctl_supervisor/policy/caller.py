"""Collect the facts about the caller that are the same for all of the caller's runs.

The caller's directories are found once for all runs that start within seconds of each other.  A
new mount counts at once.  The reserved paths are found again for each run, since they depend on
links and on paths that do not exist yet.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from agentctl_supervisor.filesystem.mount_table import mounts, table
from agentctl_supervisor.policy import shared_view
from agentctl_supervisor.policy.never_writable import Reserved, reserved
from agentctl_supervisor.policy.path_aliases import OtherNames
from agentctl_supervisor.policy.unsuitable_directories import Places, places
from agentctl_supervisor.policy.view import Piece


class Caller(NamedTuple):
    """The facts about the caller.

    ``names``: the other names of directories that have several.
    ``ours``: the pieces of agentctl in the view of a run.
    ``reserved``: the paths that a run may not write to.
    """

    names: OtherNames
    places: Places
    ours: tuple[Piece, ...]
    reserved: Reserved


def caller(environ: Mapping[str, str]) -> Caller:
    """Return the facts about the caller whose environment is *environ*."""
    names, there = _directories(frozenset(environ.items()), table(), shared_view.moment())
    files, ours = shared_view.ours(there)
    return Caller(names, there, ours, reserved(files, there.obeyed, names))


@lru_cache(maxsize=4)
def _directories(
    variables: frozenset[tuple[str, str]], mounted: bytes, _moment: int
) -> tuple[OtherNames, Places]:
    names = OtherNames(mounts(mounted))
    return names, places(dict(variables))
