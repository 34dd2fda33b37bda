"""The mount points of a private root's parts: existing files, or files made for this purpose.

Files are made only in memory of ours: in the root itself, and in what is private to the run. On
the host nothing is made, and no link is followed.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from agentctl_child.sandbox import beneath, syscalls
from agentctl_child.sandbox.descriptors import closing

_DIRECTORY: Final = 0o755
_FILE: Final = 0o444


@dataclass(frozen=True)
class Land:
    """The owner of the files below a path: us, so that we may add files, or another owner.

    ``run_owns``: files that are made there belong to the run.
    """

    ours: bool
    run_owns: bool = False


class Mountpoints:
    """The paths below one root; parents are mounted before what lies in them.

    ``root``: an open directory of ours. ``uid``, ``gid``: the run's ids.
    """

    def __init__(self, root: int, uid: int, gid: int) -> None:
        self._root = root
        self._uid, self._gid = uid, gid
        self._lands = {b"/": Land(ours=True)}
        # Open directories in memory of ours, by path.
        self._directories = {b"/": root}

    def close(self) -> None:
        """Close the directories; the root stays open."""
        del self._directories[b"/"]
        for directory in self._directories.values():
            os.close(directory)
        self._directories.clear()

    def settle(self, path: bytes, land: Land) -> None:
        """Record what is mounted at a path now."""
        self._lands[path] = land
        known = self._directories.pop(path, None)
        if known is not None:
            os.close(known)

    def land_around(self, path: bytes) -> Land:
        """Return the land that a path lies in, without the path itself."""
        while path != b"/":
            path = os.path.dirname(path)
            if path in self._lands:
                break
        return self._lands[path]

    @contextlib.contextmanager
    def at(self, path: bytes, *, directory: bool | None) -> Iterator[int]:
        """Yield a descriptor of what is at a path.

        ``directory``: True if it must be a directory, False if it must not. None accepts what is
        there, and makes a directory if there is nothing. Raises OSError if it is missing or of
        another kind.
        """
        land = self.land_around(path)
        if not land.ours:
            place = beneath.open_beneath(self._root, path.strip(b"/") or b".")
        elif directory is False:
            place = self._file(path)
        else:
            place = self._new_directory(path, run_owns=land.run_owns)
        with closing(place):
            is_directory = stat.S_ISDIR(os.fstat(place).st_mode)
            if directory is not None and is_directory != directory:
                number = errno.EISDIR if is_directory else errno.ENOTDIR
                raise OSError(number, os.strerror(number))
            yield place

    def link(self, path: bytes, target: bytes) -> None:
        """Make a symbolic link; on the host's files, check that it exists. Raises OSError."""
        above, name = os.path.split(path)
        land = self.land_around(path)
        if land.ours:
            directory = self._directory(above, run_owns=land.run_owns)
            syscalls.call("symlink", os.symlink, target, name, dir_fd=directory)
            return
        with closing(beneath.open_beneath(self._root, above.strip(b"/") or b".")) as place:
            if os.readlink(name, dir_fd=place) != target:
                raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))

    def _directory(self, path: bytes, *, run_owns: bool) -> int:
        """Return a directory in memory of ours, made if it is missing; it stays open."""
        if path not in self._directories:
            self._directories[path] = self._new_directory(path, run_owns=run_owns)
        return self._directories[path]

    def _new_directory(self, path: bytes, *, run_owns: bool) -> int:
        if path == b"/":
            return os.dup(self._root)
        above, name = os.path.split(path)
        # The parent may be in another land: a home in the root.
        parents = self.land_around(path).run_owns
        parent = self._directory(above, run_owns=parents)
        try:
            syscalls.call("mkdir", os.mkdir, name, _DIRECTORY, dir_fd=parent)
        except FileExistsError:
            pass
        else:
            if run_owns:
                # What lies in a directory of the run belongs to the run.
                owner = (self._uid, self._gid)
                syscalls.call("chown", os.chown, name, *owner, dir_fd=parent, follow_symlinks=False)
        return beneath.open_beneath(parent, name)

    def _file(self, path: bytes) -> int:
        above, name = os.path.split(path)
        parent = self._directory(above, run_owns=self.land_around(path).run_owns)
        flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            return syscalls.call("open", os.open, name, flags, _FILE, dir_fd=parent)
        except FileExistsError:
            return beneath.open_beneath(parent, name)
