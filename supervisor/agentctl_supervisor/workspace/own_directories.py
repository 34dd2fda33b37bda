"""The run's own directories in its run directory, and their removal.

A private workspace has the files that the run made, and stays as long as the run is kept.  The
run's temporary directory and home are on disk at the level ``standard`` only.  They are removed
when the run ends.
"""

from pathlib import Path
from typing import Final

from agentctl_supervisor.workspace.removal import remove_tree

WORKSPACE: Final = "workspace"
TEMPORARY: Final = "tmp"
HOME: Final = "home"
_REMOVE_S: Final = 5.0


def remove_private(directory: Path) -> bool:
    """Remove home and temporary directory of the run in *directory*; return whether both are gone.

    Blocks for at most 10 seconds.  The rest is removed together with the run (`store.pruning`).
    """
    gone = [remove_tree(directory / name, _REMOVE_S) for name in (TEMPORARY, HOME)]
    return all(gone)
