"""Other names of a directory: what is mounted in two places has two paths, and neither is a link.

A run that may write beneath one of them changes what is read by the other.
"""

import itertools
import os
from collections import defaultdict
from collections.abc import Iterable

from agentctl_supervisor.policy.links import is_beneath
from agentctl_supervisor.processes.mountinfo import Mount


class OtherNames:
    """Knows them from a *table* of mounts.

    Another file system that shows the same files, as an overlay or a network's does, is not
    seen through, and neither is a hard link.
    """

    def __init__(self, table: Iterable[Mount]) -> None:
        by_device: defaultdict[bytes, list[Mount]] = defaultdict(list)
        self._by_point: dict[str, Mount] = {}
        for mount in table:
            by_device[mount.device].append(mount)
            # The later one lies on top.
            self._by_point[mount.point] = mount
        self._doubled = {device: found for device, found in by_device.items() if _overlap(found)}

    def __repr__(self) -> str:
        return f"<OtherNames of {len(self._doubled)} file systems>"

    def of(self, path: str) -> tuple[str, ...]:
        """Those of the real *path*, itself not among them; also of what is not there."""
        mount = self._shown_by(path)
        if mount is None or mount.device not in self._doubled:
            return ()
        inside = _join(mount.root, os.path.relpath(path, mount.point))
        found: dict[str, None] = {}
        for other in self._doubled[mount.device]:
            if is_beneath(inside, other.root):
                name = _join(other.point, os.path.relpath(inside, other.root))
                if name != path and _is_one(path, name):
                    found[name] = None
        return tuple(found)

    def with_all(self, paths: Iterable[str]) -> tuple[str, ...]:
        """*paths*, and the other names of each."""
        return tuple(dict.fromkeys(name for path in paths for name in (path, *self.of(path))))

    def _shown_by(self, path: str) -> Mount | None:
        """The mount with the longest path above *path*."""
        while path not in self._by_point:
            if path in ("/", ""):
                return None
            path = os.path.dirname(path)
        return self._by_point[path]


def _overlap(found: list[Mount]) -> bool:
    """Whether one of them shows all, or a part, of what another shows."""
    # Sorted so, what lies beneath a path comes right after it.
    roots = sorted((mount.root for mount in found), key=lambda root: root.split("/"))
    return any(is_beneath(one, other) for other, one in itertools.pairwise(roots))


def _join(directory: str, inside: str) -> str:
    return directory if inside == "." else os.path.join(directory, inside)


def _is_one(path: str, name: str) -> bool:
    """Whether both lead to one file: a mount may be covered by another."""
    try:
        one, other = os.lstat(path), os.lstat(name)
    except OSError:
        return False
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
