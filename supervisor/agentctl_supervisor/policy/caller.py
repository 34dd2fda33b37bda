"""What is known of whoever starts runs, whatever the run is.

Its directories are found once for all runs that are started within seconds of each other.  What
is mounted meanwhile counts at once; and what is reserved is looked for each time, since it hangs
on links, and on what is not there yet.
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
    """``ours``: what a run sees of agentctl; ``reserved``: what it may not be given to write to.

    ``names``: of directories that have several.
    """

    names: OtherNames
    places: Places
    ours: tuple[Piece, ...]
    reserved: Reserved


def caller(environ: Mapping[str, str]) -> Caller:
    """Whoever has the variables *environ*."""
    names, there = _directories(frozenset(environ.items()), table(), shared_view.moment())
    files, ours = shared_view.ours(there)
    return Caller(names, there, ours, reserved(files, there.obeyed, names))


@lru_cache(maxsize=4)
def _directories(
    variables: frozenset[tuple[str, str]], mounted: bytes, _moment: int
) -> tuple[OtherNames, Places]:
    names = OtherNames(mounts(mounted))
    return names, places(dict(variables))
