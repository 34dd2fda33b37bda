"""What is known of whoever starts runs, whatever the run is.

Its directories, and what it imports, are found once for all runs that are started within seconds of
each other in one place.  What is mounted or installed meanwhile counts at once; and what is
reserved is looked for each time, since it hangs on links, and on what is not there yet.
"""

import os
import site
import sys
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
    variables = frozenset(environ.items())
    moment = shared_view.moment()
    names, there = _directories(variables, table(), moment)
    files, ours = shared_view.ours(there, environ.get("PYTHONPATH", ""))
    if path is None:
        path = _imports(variables, here, _installed(), moment)
    return Caller(names, there, ours, reserved(files, path, there.obeyed, names))


@lru_cache(maxsize=4)
def _directories(
    variables: frozenset[tuple[str, str]], mounted: bytes, _moment: int
) -> tuple[OtherNames, Places]:
    names = OtherNames(mounts(mounted))
    return names, places(dict(variables))


@lru_cache(maxsize=4)
def _imports(
    variables: frozenset[tuple[str, str]], here: str, _installed: object, _moment: int
) -> ImportPath:
    return import_path(dict(variables), here)


def _installed() -> object:
    """Another one after something was imported or installed, or the search path was changed."""
    return (
        tuple(str(entry) for entry in sys.path),
        len(sys.modules),
        tuple(map(_changed_at, (*site.getsitepackages(), site.getusersitepackages()))),
    )


def _changed_at(directory: str) -> int:
    try:
        return os.stat(directory).st_mtime_ns
    except OSError:
        return 0
