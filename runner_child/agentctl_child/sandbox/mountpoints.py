"""Where the parts of a private root are mounted: on what is there, or on what is made for it.

Only ever made in memory of ours: the root itself, and what is private to the run.  On the
host nothing is made, and no link is followed.
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
    """Whose the files are that lie below a path: ours, to add to, or somebody's.

    ``run_owns``: what is made there belongs to the run.
    """

    ours: bool
    run_owns: bool = False


class Mountpoints:
    """The paths below one root; parents are mounted before what lies in them.

    ``root``: an open directory of ours.  ``uid``, ``gid``: of the run.
    """

    def __init__(self, root: int, uid: int, gid: int) -> None:
        self._root = root
        self._uid, self._gid = uid, gid
        self._lands = {b"/": Land(ours=True)}
        # Directories in memory of ours that are open, by path.
        self._directories = {b"/": root}

    def close(self) -> None:
        """Forget the directories; the root stays open."""
        del self._directories[b"/"]
        for directory in self._directories.values():
            os.close(directory)
        self._directories.clear()

    def settle(self, path: bytes, land: Land) -> None:
        """Say what is mounted at a path now."""
        self._lands[path] = land
        known = self._directories.pop(path, None)
        if known is not None:
            os.close(known)

    def land_around(self, path: bytes) -> Land:
        """What a path lies in; itself it counts for nothing."""
        while path != b"/":
            path = os.path.dirname(path)
            if path in self._lands:
                break
        return self._lands[path]

    @contextlib.contextmanager
    def at(self, path: bytes, *, directory: bool | None) -> Iterator[int]:
        """What is at a path, open.  Raises OSError: it is missing, or of another kind.

        ``directory``: whether it must be one; None: whatever is there, and a directory if there
        is nothing.
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
        """Make a symbolic link; on the host's files, see that it is there.  Raises OSError."""
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
        """A directory in memory of ours, made if it is missing; it stays open with us."""
        if path not in self._directories:
            self._directories[path] = self._new_directory(path, run_owns=run_owns)
        return self._directories[path]

    def _new_directory(self, path: bytes, *, run_owns: bool) -> int:
        if path == b"/":
            return os.dup(self._root)
        above, name = os.path.split(path)
        # The land of what is above may be another one: a home in the root.
        parents = self.land_around(path).run_owns
        parent = self._directory(above, run_owns=parents)
        try:
            syscalls.call("mkdir", os.mkdir, name, _DIRECTORY, dir_fd=parent)
        except FileExistsError:
            pass
        else:
            if run_owns:
                # What lies in a directory of the run's is the run's.
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
