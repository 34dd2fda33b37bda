"""What is known of whoever starts runs, whatever the run is.

Found once for all runs that are started within seconds of each other in one directory: to look at
a hundred places takes as long as all else that a start decides.  What is mounted meanwhile
counts at once.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from agentctl_supervisor.policy import shared_view
from agentctl_supervisor.policy.import_path import ImportPath, import_path
from agentctl_supervisor.policy.other_names import OtherNames
from agentctl_supervisor.policy.places import Places, places
from agentctl_supervisor.policy.reserved import Reserved, reserved
from agentctl_supervisor.policy.view import Piece
from agentctl_supervisor.processes.mountinfo import mounts, table


class Caller(NamedTuple):
    """``ours``: what a run sees of agentctl; ``reserved``: what it may not be given to write to.

    ``names``: of directories that have several.
    """

    names: OtherNames
    places: Places
    ours: tuple[Piece, ...]
    reserved: Reserved


def caller(environ: Mapping[str, str], here: str, path: ImportPath | None = None) -> Caller:
    """Whoever has the variables *environ*, and starts runs in the absolute *here*.

    *path*: what the process that somebody started imports, if this is another one.
    """
    return _caller(frozenset(environ.items()), here, path, table(), shared_view.moment())


@lru_cache(maxsize=4)
def _caller(
    variables: frozenset[tuple[str, str]],
    here: str,
    path: ImportPath | None,
    mounted: bytes,
    _moment: int,
) -> Caller:
    environ = dict(variables)
    names = OtherNames(mounts(mounted))
    there = places(environ, names)
    files, ours = shared_view.ours(there, environ.get("PYTHONPATH", ""))
    kept = reserved(files, path or import_path(environ, here), there.obeyed, names)
    return Caller(names, there, ours, kept)
