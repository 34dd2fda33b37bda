"""Make a run's own directories on the disk before the run starts.

A fresh workspace has the files that the run made, so it stays as long as the run is kept.  At
standard, home and ``/tmp`` are on the disk too, because a run has no file system in memory there.
They are removed at the run's end (`Aftermath`).
"""

import os

from agentctl_supervisor.policy.decision import Policy


def make(policy: Policy, own_uid: int | None) -> None:
    """Make the directories of *policy*, and give home and ``/tmp`` to *own_uid* if there is one.

    Raises:
        OSError: a directory cannot be made.
    """
    for path in policy.to_make:
        os.mkdir(path, 0o700)
        # A workspace always belongs to the caller; files that the run makes in it are handed over.
        if own_uid is not None and path in (policy.home, policy.tmp):
            # Safe: we made it just now, in our own directory that no other user can enter.
            os.chown(path, own_uid, own_uid, follow_symlinks=False)
