"""The directories that a run may write to, and the form of paths in them for reports."""

import os
from collections.abc import Sequence
from typing import Final

from agentctl_protocol.os_names import to_bytes
from agentctl_protocol.spec import RunSpec

MAX_ROOTS: Final = 32


def roots_of(workspace: str, spec: RunSpec) -> tuple[bytes, ...]:
    """Return the *workspace* of a run, then the paths that ``--rw`` adds outside of it.

    *workspace* is the text of a report or record.  If it is empty, the run's writes are not
    confined, and the result is empty.
    All paths are absolute.  A relative path, which can be in a spec that another program made, is
    left out, because its meaning would depend on our working directory.  Code that opens the paths
    must still follow no link.
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
    """Return *path* relative to the first of *roots*, or absolute if it is beneath another root.

    The result is None if *path* is beneath none of *roots*.
    """
    for number, root in enumerate(roots):
        if path == root:
            return b"." if number == 0 else root
        if path.startswith(root.rstrip(b"/") + b"/"):
            return path[len(root.rstrip(b"/")) + 1 :] if number == 0 else path
    return None
