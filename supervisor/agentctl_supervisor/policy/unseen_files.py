"""Find the files that a run's variables name and that are not in its view.

Example: ``--env`` passes ``SSL_CERT_FILE`` to a run, but the file needs ``--ro`` as well.
"""

import os
from collections.abc import Iterator, Mapping

from agentctl_protocol.spawning import Bind
from agentctl_supervisor.policy import environment
from agentctl_supervisor.policy.links import follow, is_beneath
from agentctl_supervisor.policy.view import View


def unseen_files(env: Mapping[str, str], view: View) -> Iterator[tuple[str, str]]:
    """Yield ``(variable, path)`` for each absolute path that exists here and not in *view*.

    A value may be a list of paths, like PATH.  Variables that every run gets, or for which it has
    its own value, are left out: their paths are the run's own or are decided elsewhere.
    """
    for name, value in env.items():
        if environment.is_inherited(name) or name in environment.OWN:
            continue
        for path in value.split(os.pathsep):
            if path.startswith("/") and not path.startswith("//") and _is_unseen(path, view):
                yield name, path


def _is_unseen(path: str, view: View) -> bool:
    try:
        real = follow(os.path.normpath(path)).real
    except (OSError, ValueError):  # it does not exist, or is not a path
        return False
    around = [piece for piece in view.pieces if is_beneath(real, piece.path)]
    # Pieces are sorted: the last one is the innermost.
    return not around or not isinstance(around[-1].part, Bind)
