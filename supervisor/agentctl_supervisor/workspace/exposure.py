"""Names in the workspace that other programs obey, and that the run could get at after all.

A name that was not there when the run began cannot be protected without leaving a stub on
the host; at ``standard`` none can, because Landlock rules never subtract.  So a run may have
made or changed them, and a person should look before going on.
"""

import os
import stat
from collections.abc import Iterable
from typing import Final

from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor.policy.protected import CONFIGURATION
from agentctl_supervisor.workspace.artifacts import read_small

_SETTINGS: Final = b"agentctl"
_MAX_SETTINGS: Final = 1 << 20
_MOST: Final = 100


def protected_now(root: int, names: Iterable[str], level: Sandbox) -> frozenset[bytes]:
    """Those of *names* that a run at *level* which begins now cannot change."""
    if level is not Sandbox.STRICT:
        return frozenset()
    return frozenset(
        os.fsencode(name)
        for name in names
        if _exists(root, name) and (name != CONFIGURATION or _has_settings(root))
    )


def exposed(root: int, touched: Iterable[bytes], protected: frozenset[bytes]) -> list[bytes]:
    """Of the names that were *touched*, those that the run could touch, in order."""
    found = [
        name
        for name in touched
        if name not in protected and (name != os.fsencode(CONFIGURATION) or _has_settings(root))
    ]
    return sorted(found)[:_MOST]


def _exists(root: int, name: str) -> bool:
    try:
        found = os.stat(name, dir_fd=root, follow_symlinks=False)
    except OSError:
        return False
    return name != ".git" or not stat.S_ISDIR(found.st_mode)


def _has_settings(root: int) -> bool:
    """Whether the project's file may hold settings of ours: to be sure costs a parser."""
    data = read_small(root, os.fsencode(CONFIGURATION), _MAX_SETTINGS)
    return data is not None and _SETTINGS in data
