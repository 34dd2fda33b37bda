"""Where a run may write, and how its paths are told."""

import os
from collections.abc import Sequence
from typing import Final

from agentctl_protocol.os_names import to_bytes
from agentctl_protocol.spec import RunSpec

MAX_ROOTS: Final = 32


def roots_of(workspace: str, spec: RunSpec) -> tuple[bytes, ...]:
    """The *workspace* of a run, then what ``--rw`` adds outside of it.

    *workspace*, the text of a report or record, is empty where there is no such bound, and so is
    the answer then.  All paths
    are absolute; one that is not, in a spec of somebody else's making, would mean whatever
    our own working directory makes of it.  Whoever opens them still follows no link.
    """
    if not workspace:
        return ()
    more = [os.path.realpath(os.fsencode(path)) for path in spec.rw if os.path.isabs(path)]
    roots = [to_bytes(workspace)]
    for root in more[:MAX_ROOTS]:
        if relative_to(root, roots) is None:
            roots.append(root)
    return tuple(roots)


def relative_to(path: bytes, roots: Sequence[bytes]) -> bytes | None:
    """How *path* is told: relative to the first of *roots*, else absolute; None: beneath none."""
    for number, root in enumerate(roots):
        if path == root:
            return b"." if number == 0 else root
        if path.startswith(root.rstrip(b"/") + b"/"):
            return path[len(root.rstrip(b"/")) + 1 :] if number == 0 else path
    return None
