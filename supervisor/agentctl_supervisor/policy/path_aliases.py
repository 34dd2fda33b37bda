"""Find the other names of a directory that is mounted in two places.

Such a directory has two paths, and neither is a link.  A run that may write beneath one of them
changes what others read beneath the other.
"""

import itertools
import os
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from agentctl_supervisor.filesystem.mount_table import Mount, mount_of
from agentctl_supervisor.policy.links import is_beneath, lies_inside
from agentctl_supervisor.policy.untrusted_files import is_missing, unreadable


class OtherNames:
    """Find the other names of paths from a *table* of mounts.

    Names in another file system that shows the same files (overlay, network file system) are not
    found, and neither are hard links.  The methods raise `UnreadableError` if a mount cannot be
    examined.
    """

    def __init__(self, table: Iterable[Mount]) -> None:
        by_device: defaultdict[bytes, list[Mount]] = defaultdict(list)
        for mount in table:
            by_device[mount.device].append(mount)
        # Most machines mount nothing twice.  Then the methods make no system call.
        self._doubled: Final = {
            device: found for device, found in by_device.items() if _overlap(found)
        }
        self._mounts: Final = {
            mount.number: mount for found in self._doubled.values() for mount in found
        }

    def __repr__(self) -> str:
        return f"<OtherNames of {len(self._doubled)} file systems>"

    def of(self, path: str, within: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Return the other names of the real *path*, without *path* itself.

        The result is empty if *path* does not exist.
        *within*: return only names that lie inside one of these directories.
        """
        mount = self._mounts.get(_mount_of(path) or 0) if self._mounts else None
        if mount is None:
            return ()
        inside = _join(mount.root, os.path.relpath(path, mount.point))
        found: dict[str, None] = {}
        for other in self._doubled[mount.device]:
            if not is_beneath(inside, other.root):
                continue
            name = _join(other.point, os.path.relpath(inside, other.root))
            wanted = within is None or any(lies_inside(name, directory) for directory in within)
            if wanted and name != path and _is_one(path, name):
                found[name] = None
        return tuple(found)

    def mounted_in(self, directory: str) -> tuple[str, ...]:
        """Return the mount points inside the real *directory* that have other names."""
        return tuple(
            mount.point
            for mount in self._mounts.values()
            if lies_inside(mount.point, directory) and _mount_of(mount.point) == mount.number
        )

    def held_in(self, directory: str) -> tuple[str, ...]:
        """Return the other names of the mount points that are `mounted_in` *directory*."""
        return tuple(name for point in self.mounted_in(directory) for name in self.of(point))

    def with_all(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return *paths* and the other names of each."""
        return tuple(dict.fromkeys(name for path in paths for name in (path, *self.of(path))))


def _mount_of(path: str) -> int | None:
    try:
        return mount_of(path)
    except OSError as error:
        raise unreadable(path, error) from None


def _overlap(found: list[Mount]) -> bool:
    """Return whether one mount shows all, or a part, of what another mount shows."""
    # This order puts the paths beneath a path directly after it.
    roots = sorted((mount.root for mount in found), key=lambda root: root.split("/"))
    return any(is_beneath(one, other) for other, one in itertools.pairwise(roots))


def _join(directory: str, inside: str) -> str:
    return directory if inside == "." else os.path.join(directory, inside)


def _is_one(path: str, name: str) -> bool:
    """Return whether both paths lead to the same file, or whether that cannot be excluded.

    They can differ, since another mount may cover one of them.
    """
    try:
        return os.path.samestat(os.lstat(path), os.lstat(name))
    except OSError as error:
        return not is_missing(error)
