"""The directories that are a run's alone, in its own directory, and what becomes of them.

A private workspace holds what the run made, and stays as long as the run is kept.  Its
temporary directory and its home, which it has on disk at the level ``standard`` only,
go with its end.
"""

from pathlib import Path
from typing import Final

from agentctl_supervisor.workspace.removal import remove_tree

WORKSPACE: Final = "workspace"
TEMPORARY: Final = "tmp"
HOME: Final = "home"
_REMOVE_S: Final = 5.0


def remove_private(directory: Path) -> bool:
    """Remove what the run in *directory* had for its life; whether all of it is gone.

    Blocks for 10 seconds at most; what is left then goes with the run (`store.pruning`).
    """
    gone = [remove_tree(directory / name, _REMOVE_S) for name in (TEMPORARY, HOME)]
    return all(gone)
