"""Find names in the workspace that other programs obey and that the run could still change.

A name that did not exist when the run began cannot be protected without leaving a stub on the host.
At ``standard`` no name can be protected, because Landlock rules never subtract.  So a run may have
made or changed such files, and the user should look at them before going on.
"""

import enum
import errno
import os
import stat
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor.filesystem.open_beneath import (
    HANDLE,
    open_beneath,
    open_directory,
    open_root,
)
from agentctl_supervisor.filesystem.writable_roots import relative_to
from agentctl_supervisor.policy import protected
from agentctl_supervisor.policy.obeyed_names import ANYWHERE
from agentctl_supervisor.policy.untrusted_files import is_missing, unreadable
from agentctl_supervisor.workspace.artifacts import read_small
from agentctl_supervisor.workspace.changes import Bounds, Walk
from agentctl_supervisor.workspace.clock import is_since

_SETTINGS: Final = b"agentctl"
_MAX_SETTINGS: Final = 1 << 20
_BENEATH_A_NAME: Final = Bounds(entries=2000, depth=8, seconds=0.1, names=1, specials=0)


class Names(NamedTuple):
    """The protected names of a directory that a run may write to, when the run begins.

    ``obeyed``: the names under which each change counts.
    ``protected``: the names that the run cannot change.
    ``linked``: the names that are a link or behind one, by the path in the workspace that the link
    leads to.  Nothing is mounted on links, so the run can change these.
    ``led``: the real path that such a name led to, by name.
    ``inodes``: the inode numbers of the protected names.  A name is protected only while it is
    the same file.
    ``anywhere``: the names that count in the directories further down, too.
    """

    obeyed: frozenset[bytes] = frozenset()
    protected: frozenset[bytes] = frozenset()
    linked: Mapping[bytes, bytes] = MappingProxyType({})
    led: Mapping[bytes, bytes] = MappingProxyType({})
    inodes: Mapping[bytes, int] = MappingProxyType({})
    anywhere: frozenset[bytes] = frozenset()


def names_now(path: bytes, unprotect: Collection[str], level: Sandbox) -> Names:
    """Return the names in the directory *path*, which a run at *level* that begins now can change.

    Raises:
        UnreadableError: a file that decides the names cannot be read.
    """
    names = tuple(protected.names_in(os.fsdecode(path), unprotect))
    further_down = ANYWHERE | {protected.CONFIGURATION}
    anywhere = frozenset(map(os.fsencode, further_down.intersection(protected.names(unprotect))))
    there: set[bytes] = set()
    linked: dict[bytes, bytes] = {}
    led: dict[bytes, bytes] = {}
    try:
        root = open_root(path)
    except OSError as error:
        if is_missing(error):  # or not a directory: the run is refused, or reports it at its end
            return Names(anywhere=anywhere)
        raise unreadable(os.fsdecode(path), error) from None
    try:
        for text in names:
            name = os.fsencode(text)
            match _kind(root, name):
                case Kind.MISSING:
                    continue
                case Kind.LINKED:
                    led[name] = real = _real(os.path.join(path, name))
                    inside = relative_to(real, (path,))
                    is_repository = name == b".git" and os.path.isdir(real)
                    if inside is not None and inside != b"." and not is_repository:
                        linked[inside] = name
                case Kind.THERE if text != protected.CONFIGURATION or _is_protected(root):
                    there.add(name)
    finally:
        os.close(root)
    kept = frozenset(there) if level is Sandbox.STRICT else frozenset()
    return Names(
        obeyed=frozenset(map(os.fsencode, names)) | linked.keys(),
        protected=kept,
        linked=linked,
        led=led,
        inodes={name: inode for name in kept if (inode := _inode(path, name))},
        anywhere=anywhere,
    )


def _inode(path: bytes, name: bytes) -> int:
    try:
        return os.lstat(os.path.join(path, name)).st_ino
    except OSError:
        return 0


def exposed(root: int, since: int, names: Names, nested: Iterable[bytes] = ()) -> list[bytes]:
    """Return the names that the run could change and that changed *since* in the workspace *root*.

    Each name is examined separately, so that a large number of other files cannot hide it.
    *nested*: the names further down that a walk has found.
    """
    own = {
        names.linked.get(name, name)
        for name in names.obeyed - names.protected
        if _is_touched(root, name, since, names.led.get(name))
        and (name != os.fsencode(protected.CONFIGURATION) or _has_settings(root))
    }
    own |= {name for name in names.protected if _is_exchanged(root, name, since, names.inodes)}
    further = [name for name in nested if not _is_within(name, names.obeyed)]
    return [*sorted(own), *sorted(set(further) - own)]


def counts(directory: int, name: bytes) -> bool:
    """Return whether *name*, which programs obey anywhere, counts in *directory*.

    The project's file counts only if it may have settings for agentctl.
    """
    return name != os.fsencode(protected.CONFIGURATION) or _has_settings(directory)


def _is_within(path: bytes, names: Collection[bytes]) -> bool:
    """Return whether *path* is, or lies beneath, one of *names*, which are examined separately."""
    at = len(path)
    while at >= 0:
        # The directory .git is the repository: only names in it count.
        if path[:at] in names and path[:at] != b".git":
            return True
        at = path.rfind(b"/", 0, at)
    return False


def _is_exchanged(root: int, name: bytes, since: int, inodes: Mapping[bytes, int]) -> bool:
    """Return whether a protected *name* is another file now, so that the run could change it.

    No run can replace it.  But another process can remove it or rename a file over it, as git does
    with its config.  Then the kernel removes the mount on it in the run.
    """
    try:
        found = _found(root, name)
    except OSError as error:
        # EXDEV: another mount is there, and no file can be renamed over a mount point.
        return not is_missing(error) and error.errno != errno.EXDEV
    if stat.S_ISDIR(found.st_mode):
        # Changes in the directory do not matter: they come from others, since the run could not
        # write there.
        return found.st_ino != inodes.get(name, found.st_ino)
    # The inode number is not enough: a new file may get the number of a removed one.
    return is_since(found.st_ctime_ns, since)


def _is_touched(root: int, name: bytes, since: int, led: bytes | None = None) -> bool:
    """Return whether *name*, or something beneath it, changed or may have changed.

    *led*: the real path that it led to, if it was behind a link.
    """
    try:
        found = _found(root, name)
        if not stat.S_ISDIR(found.st_mode):
            return is_since(found.st_ctime_ns, since)
        if name == b".git":
            return False
        fd = open_directory(root, name)
    except OSError as error:
        if error.errno == errno.ELOOP and led is not None:
            return not led or _real(os.path.join(_path(root), name)) != led
        return not is_missing(error)
    try:
        walk = Walk(since, _BENEATH_A_NAME)
        walk.run(fd)
    finally:
        os.close(fd)
    # A directory that cannot be examined completely, or not in time, may hold a change.
    return bool(walk.changed or walk.left_out or walk.notes)


class Kind(enum.Enum):
    """The kind of file that is found under a name."""

    MISSING = enum.auto()
    THERE = enum.auto()
    LINKED = enum.auto()


def _kind(root: int, name: bytes) -> Kind:
    try:
        mode = _found(root, name).st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            return Kind.LINKED
        # EXDEV: another mount is protected like other files.  It is unknown whether a path that
        # cannot be examined is protected, so each change of it counts (MISSING).
        return Kind.THERE if error.errno == errno.EXDEV else Kind.MISSING
    if stat.S_ISLNK(mode):
        return Kind.LINKED
    # The directory .git is the repository; other names in it count.
    return Kind.MISSING if name == b".git" and stat.S_ISDIR(mode) else Kind.THERE


def _real(path: bytes) -> bytes:
    """Return the real path of *path*; empty if another run is replacing a link on the way."""
    try:
        return os.path.realpath(path)
    except OSError:
        return b""


def _path(root: int) -> bytes:
    return os.fsencode(os.readlink(f"/proc/self/fd/{root}"))


def _found(root: int, name: bytes) -> os.stat_result:
    if b"/" not in name:  # most names; there is no directory on the way that could be a link
        return os.stat(name, dir_fd=root, follow_symlinks=False)
    handle = open_beneath(root, name, HANDLE)
    try:
        return os.fstat(handle)
    finally:
        os.close(handle)


def _is_protected(root: int) -> bool:
    """Return whether the project's file has settings for agentctl, as `policy.decision` does."""
    data = read_small(root, os.fsencode(protected.CONFIGURATION), _MAX_SETTINGS)
    return data is None or protected.has_settings(data)


def _has_settings(root: int) -> bool:
    """Return whether the project's file may have settings for agentctl.

    The file is not parsed, because that would cost too much.
    """
    name = os.fsencode(protected.CONFIGURATION)
    data = read_small(root, name, _MAX_SETTINGS)
    return data is None or _SETTINGS in data
