"""Names in the workspace that other programs obey, and that the run could get at after all.

A name that was not there when the run began cannot be protected without leaving a stub on
the host; at ``standard`` none can, because Landlock rules never subtract.  So a run may have
made or changed them, and a person should look before going on.
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
    """The protected names of a directory that a run may write to, as the run begins.

    ``obeyed``: whatever is changed under these counts.  ``protected``: those that the run
    cannot change.  ``linked``: where a name is a link, or behind one, what it means in the
    workspace; nothing is mounted on links, so that the run can change it.  ``led``: where each
    of those led.  ``inodes``: of the protected ones, which are protected for as long as they
    are these files.  ``anywhere``: those that count in the directories further down as well.
    """

    obeyed: frozenset[bytes] = frozenset()
    protected: frozenset[bytes] = frozenset()
    linked: Mapping[bytes, bytes] = MappingProxyType({})
    led: Mapping[bytes, bytes] = MappingProxyType({})
    inodes: Mapping[bytes, int] = MappingProxyType({})
    anywhere: frozenset[bytes] = frozenset()


def names_now(path: bytes, unprotect: Collection[str], level: Sandbox) -> Names:
    """The names in the directory *path*, writable for a run at *level* which begins now.

    Raises:
        UnreadableError: what they are cannot be known.
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
        if is_missing(error):  # or a file: then the run is refused, or says so at its end
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
    """The names that were touched *since* in the workspace *root*, and that the run could touch.

    They are looked at one by one, so that no flood of other files hides them.  *nested*: those
    of repositories further down that a walk has come by.
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
    """Whether *name*, which is obeyed anywhere, is obeyed in *directory* with what is in it."""
    return name != os.fsencode(protected.CONFIGURATION) or _has_settings(directory)


def _is_within(path: bytes, names: Collection[bytes]) -> bool:
    """Whether *path* is, or lies beneath, one of *names*, which are looked at one by one."""
    at = len(path)
    while at >= 0:
        # As a directory, .git is the repository: only names in it count.
        if path[:at] in names and path[:at] != b".git":
            return True
        at = path.rfind(b"/", 0, at)
    return False


def _is_exchanged(root: int, name: bytes, since: int, inodes: Mapping[bytes, int]) -> bool:
    """Whether a protected *name* is another file now, and so the run's to change.

    No run can do that.  But when somebody outside renames something over it, as git does with
    its config, or removes it, the kernel takes away what was mounted on it in the run.
    """
    try:
        found = _found(root, name)
    except OSError as error:
        # Another mount is there, and cannot be renamed over.
        return not is_missing(error) and error.errno != errno.EXDEV
    if stat.S_ISDIR(found.st_mode):
        # What others put into it says nothing: the run still could not.
        return found.st_ino != inodes.get(name, found.st_ino)
    # The number alone does not do: that of a file that is gone is given to the next one.
    return is_since(found.st_ctime_ns, since)


def _is_touched(root: int, name: bytes, since: int, led: bytes | None = None) -> bool:
    """Whether *name*, or something beneath it, has changed, or may have.

    *led*: where it led if it was behind a link.
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
    # One that cannot be looked through, or not in time, may hold anything.
    return bool(walk.changed or walk.left_out or walk.notes)


class Kind(enum.Enum):
    """What is found under a name."""

    MISSING = enum.auto()
    THERE = enum.auto()
    LINKED = enum.auto()


def _kind(root: int, name: bytes) -> Kind:
    try:
        mode = _found(root, name).st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            return Kind.LINKED
        # Another mount is protected as everything else.  Of what cannot be looked at, nobody
        # knows whether it is: so each change of it counts.
        return Kind.THERE if error.errno == errno.EXDEV else Kind.MISSING
    if stat.S_ISLNK(mode):
        return Kind.LINKED
    # As a directory it is the repository, in which there are other names.
    return Kind.MISSING if name == b".git" and stat.S_ISDIR(mode) else Kind.THERE


def _real(path: bytes) -> bytes:
    """Where *path* leads; nothing while another run exchanges a link on the way."""
    try:
        return os.path.realpath(path)
    except OSError:
        return b""


def _path(root: int) -> bytes:
    return os.fsencode(os.readlink(f"/proc/self/fd/{root}"))


def _found(root: int, name: bytes) -> os.stat_result:
    if b"/" not in name:  # most names: there is no way on which a link could be
        return os.stat(name, dir_fd=root, follow_symlinks=False)
    handle = open_beneath(root, name, HANDLE)
    try:
        return os.fstat(handle)
    finally:
        os.close(handle)


def _is_protected(root: int) -> bool:
    """Whether the project's file has settings of ours, as `policy.decision` finds out."""
    data = read_small(root, os.fsencode(protected.CONFIGURATION), _MAX_SETTINGS)
    return data is None or protected.has_settings(data)


def _has_settings(root: int) -> bool:
    """Whether the project's file may hold settings of ours: to be sure costs a parser."""
    name = os.fsencode(protected.CONFIGURATION)
    data = read_small(root, name, _MAX_SETTINGS)
    return data is None or _SETTINGS in data
