"""Find what changed beneath a directory since a given time: a bounded walk by descriptors.

The walk follows no link and enters no other mount.  It opens only directories: opening one does not
block, and a link cannot replace one unnoticed (`open_beneath`).  Depth costs no descriptors,
because each directory is opened anew from the root.  Directories near the top come first, and those
that programs fill (``.git``, ``node_modules``) come last.  So a walk that ends early has seen the
files that a user would look at.
"""

import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, TypeAlias

from agentctl_supervisor.filesystem.open_beneath import open_directory
from agentctl_supervisor.policy.obeyed_names import OF_A_REPOSITORY
from agentctl_supervisor.workspace.clock import is_since

_FILLED_BY_PROGRAMS: Final = frozenset(
    {b".git", b".hg", b".svn", b"node_modules", b"__pycache__", b".venv", b"venv", b".cache"}
)
_VERSION_CONTROL: Final = (b"/.git/", b"/.hg/", b"/.jj/")
_OF_A_REPOSITORY: Final = frozenset(map(os.fsencode, OF_A_REPOSITORY))
_MOST_PARTS: Final = 3
"""The most components of a name in `policy.obeyed_names`."""
_NO_DIRECTORY_ANY_MORE: Final = frozenset({errno.ELOOP, errno.ENOTDIR})
_CHECK_CLOCK_EVERY: Final = 64
_MAX_PATH: Final = 4000
"""In bytes.  Less than PATH_MAX, so that each path can be opened in one step."""
_KINDS: Final = {
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


class Bounds(NamedTuple):
    """The limits of a walk, and of the lists with its results.

    ``specials``, ``special_bytes``: the limits for each of the lists ``specials`` and ``nested``.
    """

    entries: int = 100_000
    depth: int = 64
    seconds: float = 0.5
    names: int = 1000
    name_bytes: int = 1 << 17
    specials: int = 100
    special_bytes: int = 1 << 14


DEFAULT: Final = Bounds()


class Special(NamedTuple):
    """A file that is not an ordinary one.  ``kind``: symlink, fifo, socket, device or setuid."""

    kind: str
    path: bytes


OnEntry: TypeAlias = Callable[[int, str, os.stat_result], None]
"""A function that is called for each entry with the descriptor of its directory, its name there,
and the result of lstat(2)."""


class _Pending(NamedTuple):
    """A directory that the walk still has to list.

    ``named``: the path with an obeyed name that it is or lies beneath.
    ``is_late``: True if programs fill it.
    """

    path: bytes
    depth: int = 0
    named: bytes | None = None
    is_late: bool = False


class _Room:
    """The number of names, and of their bytes, that a list may still take."""

    def __init__(self, names: int, size: int) -> None:
        self._names = names
        self._bytes = size

    def take(self, name: bytes) -> bool:
        """Reserve room for *name*, and return whether there was enough."""
        if self._names <= 0 or len(name) > self._bytes:
            return False
        self._names -= 1
        self._bytes -= len(name)
        return True


class Walk:
    """A walk through one directory.  Call `run` once, then read the results.

    All paths are relative to the directory.

    ``changed``: the changed paths, directories with a slash at the end.
    ``left_out``: the number of further changed paths.
    ``nested``: paths further down whose last components are a name in *obeyed*, if they or
    something beneath them changed.
    ``nested_left_out``: the number of further such paths.
    ``notes``: the reasons why not everything was examined.
    *counts*: called with the descriptor of a directory and such a name in it; tells whether the
    name is obeyed there.
    """

    def __init__(
        self,
        since: int,
        bounds: Bounds = DEFAULT,
        obeyed: Collection[bytes] = (),
        on_entry: OnEntry | None = None,
        counts: Callable[[int, bytes], bool] = lambda _directory, _name: True,
    ) -> None:
        self.changed: Final[list[bytes]] = []
        self.left_out = 0
        self.specials: Final[list[Special]] = []
        self.nested: Final[dict[bytes, None]] = {}
        self.nested_left_out = 0
        self.notes: Final[list[str]] = []
        self._since = since
        self._bounds = bounds
        self._obeyed = frozenset(obeyed)
        self._on_entry = on_entry
        self._counts = counts
        self._pending: deque[_Pending] = deque()
        self._pending_late: deque[_Pending] = deque()
        self._entries_left = bounds.entries
        self._changed_room = _Room(bounds.names, bounds.name_bytes)
        self._special_room = _Room(bounds.specials, bounds.special_bytes)
        # Separate, so that a run cannot shorten one list by filling the other.
        self._nested_room = _Room(bounds.specials, bounds.special_bytes)
        self._deadline = 0.0
        self._not_entered = 0
        self._not_looked_at = 0
        self._mounts = 0
        self._too_deep = 0

    def __repr__(self) -> str:
        return f"<Walk: {len(self.changed)} changed, {self.notes}>"

    def run(self, root: int) -> None:
        """Examine everything beneath the directory *root*.  Blocks until the time limit at most."""
        self._deadline = time.monotonic() + self._bounds.seconds
        self._pending.append(_Pending(b""))
        cut = ""
        while not cut and (self._pending or self._pending_late):
            cut = self._enter(root, (self._pending or self._pending_late).popleft())
        if cut:
            self.notes.append(cut)
        if self._too_deep:
            self.notes.append(f"{self._too_deep} directories are nested too deeply")
        if self._mounts:
            self.notes.append(f"{self._mounts} mounts beneath it were not entered")
        if self._not_entered:
            self.notes.append(f"{self._not_entered} directories cannot be read")
        if self.nested_left_out:
            self.notes.append(f"{self.nested_left_out} more changes of names that programs obey")
        if self._not_looked_at:
            self.notes.append(f"{self._not_looked_at} files cannot be looked at")

    def _enter(self, root: int, directory: _Pending) -> str:
        """List *directory*; return the reason why the walk must end, or an empty text."""
        try:
            fd = open_directory(root, directory.path or b".")
        except FileNotFoundError:
            return ""  # removed or moved meanwhile
        except OSError as error:
            if error.errno == errno.EXDEV:
                self._mounts += 1
            elif error.errno not in _NO_DIRECTORY_ANY_MORE:
                self._not_entered += 1
            return ""
        try:
            if not directory.path and is_since(os.fstat(fd).st_ctime_ns, self._since):
                self._keep(b"./")
            return self._list(fd, directory)
        except OSError:
            self._not_entered += 1
            return ""
        finally:
            os.close(fd)

    def _list(self, fd: int, directory: _Pending) -> str:
        prefix = directory.path + b"/" if directory.path else b""
        since, on_entry = self._since, self._on_entry
        is_repository = bool(prefix) and not prefix.endswith(b"/.git/") and _is_repository(fd)
        with os.scandir(fd) as entries:
            for entry in entries:
                self._entries_left -= 1
                if self._entries_left < 0:
                    return f"there are more than {self._bounds.entries:,} files"
                if (
                    self._entries_left % _CHECK_CLOCK_EVERY == 0
                    and time.monotonic() > self._deadline
                ):
                    return "there was no time to look at everything"
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # removed meanwhile
                except OSError:
                    self._not_looked_at += 1  # the directory has read, but no search permission
                    continue
                is_directory = stat.S_ISDIR(found.st_mode)
                has_changed = is_since(found.st_ctime_ns, since)
                if is_directory or has_changed:
                    path = prefix + os.fsencode(entry.name)
                    named = directory.named or self._name_of(path, directory, is_directory)
                    if named is None and is_repository and path[len(prefix) :] in _OF_A_REPOSITORY:
                        named = path
                    if named is path and not self._counts(fd, path[len(prefix) :]):
                        named = None
                    if has_changed:
                        self._add(path, found.st_mode, named)
                    if is_directory:
                        self._defer(path, directory, named)
                if on_entry is not None:
                    on_entry(fd, entry.name, found)
        return ""

    def _defer(self, path: bytes, parent: _Pending, named: bytes | None) -> None:
        if parent.depth >= self._bounds.depth or len(path) > _MAX_PATH:
            self._too_deep += 1
            return
        is_late = parent.is_late or os.path.basename(path) in _FILLED_BY_PROGRAMS
        pending = self._pending_late if is_late else self._pending
        pending.append(_Pending(path, parent.depth + 1, named, is_late))

    def _name_of(self, path: bytes, parent: _Pending, is_directory: bool) -> bytes | None:
        """Return *path* if it is not at the top and has a name that programs obey, else None."""
        at = len(path)
        for _ in range(_MOST_PARTS):
            at = path.rfind(b"/", 0, at)
            if at < 0:
                return None
            name = path[at + 1 :]
            if name in self._obeyed and not (name == b".git" and is_directory):
                # Thousands of installed packages have such files for their own developers.
                by_programs = parent.is_late and not any(vc in path for vc in _VERSION_CONTROL)
                return None if by_programs and name != b".git" else path
        return None

    def _add(self, path: bytes, mode: int, named: bytes | None) -> None:
        if named is not None and named not in self.nested:
            if self._nested_room.take(named):
                self.nested[named] = None
            else:
                self.nested_left_out += 1
        kind = _KINDS.get(stat.S_IFMT(mode))
        if kind is None and stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
            kind = "setuid"
        if kind is not None and self._special_room.take(path):
            self.specials.append(Special(kind, path))
        self._keep(path + b"/" if stat.S_ISDIR(mode) else path)

    def _keep(self, path: bytes) -> None:
        if self._changed_room.take(path):
            self.changed.append(path)
        else:
            self.left_out += 1


def _is_repository(directory: int) -> bool:
    """Return whether git takes *directory* for a repository: gitrepository-layout(5)."""
    try:
        os.stat(b"HEAD", dir_fd=directory, follow_symlinks=False)
    except OSError:  # the usual case
        return False
    for name in (b"objects", b"commondir"):
        try:
            os.stat(name, dir_fd=directory, follow_symlinks=False)
        except OSError:
            continue
        return True
    return False
