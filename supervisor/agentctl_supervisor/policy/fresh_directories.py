"""Directories of a run's own on the disk, made before it.

A fresh workspace stays as long as the run is kept: what the run made is in it.  Home and ``/tmp``
at standard, which has no memory of its own to put them into, go with the run's end (`Aftermath`).
"""

import os

from agentctl_supervisor.policy.decision import Policy


def make(policy: Policy, own_uid: int | None) -> None:
    """Make the directories of *policy*, for *own_uid* where that is to own them.

    Raises:
        OSError: one cannot be made.
    """
    for path in policy.to_make:
        os.mkdir(path, 0o700)
        # A workspace stays the caller's, as every other: what is made in it is given back.
        if own_uid is not None and path in (policy.home, policy.tmp):
            # Made just now by us, in a directory of ours that nobody else can enter.
            os.chown(path, own_uid, own_uid, follow_symlinks=False)
