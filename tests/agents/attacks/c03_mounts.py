"""Change what is mounted where, by the old calls and the new ones: refused, each of them.

Whoever mounts can uncover what was covered, or leave the root it was given.
"""

import ctypes
import errno
import os
import struct
import tempfile

from attempt import FACTS, Blocked, attempt, checked, libc, only_root, syscall

_NEWNS, _NEWUSER = 0x0002_0000, 0x1000_0000
_MS_BIND, _MS_REC, _MS_PRIVATE, _MS_REMOUNT = 4096, 16384, 1 << 18, 32
_MNT_DETACH = 2
_PIVOT_ROOT = 155
_OPEN_TREE, _MOVE_MOUNT, _FSOPEN, _FSCONFIG, _FSMOUNT, _FSPICK = 428, 429, 430, 431, 432, 433
_MOUNT_SETATTR, _OPEN_TREE_ATTR = 442, 467
_WHOLE_COPY = 1 | 0x8000 | os.O_CLOEXEC  # OPEN_TREE_CLONE, AT_RECURSIVE
_MOVE_MOUNT_F_EMPTY_PATH, _FSCONFIG_CMD_CREATE = 4, 6
_AT_FDCWD, _MOUNT_ATTR_RDONLY = -100, 1


def _apart() -> bool:
    """Where one may, in a mount namespace of one's own: the host keeps its mounts."""
    flags = _NEWNS if os.geteuid() == 0 else _NEWNS | _NEWUSER
    if libc.unshare(flags):
        return False
    return int(libc.mount(None, b"/", None, _MS_REC | _MS_PRIVATE, None)) == 0


def _place() -> str:
    workspace: str = FACTS["workspace"]
    return tempfile.mkdtemp(dir=workspace)


def _mounted(place: str) -> str:
    here, above = os.stat(place), os.stat(os.path.dirname(place))
    if here.st_dev == above.st_dev:
        raise Blocked("no error, and nothing mounted")
    return f"{place} is on device {here.st_dev}"


def _tmpfs() -> str:
    place = _place()
    checked(libc.mount(b"tmpfs", place.encode(), b"tmpfs", 0, b"size=64k"))
    return place


def tmpfs() -> str:
    _apart()
    return _mounted(_tmpfs())


def bind() -> str:
    _apart()
    place = _place()
    checked(libc.mount(b"/proc", place.encode(), None, _MS_BIND | _MS_REC, None))
    return _mounted(place)


def remount_root_writable() -> str:
    _apart()
    checked(libc.mount(None, b"/", None, _MS_REMOUNT | _MS_BIND, None))
    return "remounted /"


def uncover() -> str:
    """Take a mount away from what it covers."""
    only_root()  # for others, what was there before their namespace cannot be parted
    if not _apart():
        # Perhaps the host's: only the permission is asked for, by what is no mount point (EINVAL).
        try:
            checked(libc.umount2(_place().encode(), _MNT_DETACH))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        return "it looked for a mount"
    checked(libc.umount2(b"/proc", _MNT_DETACH))
    if os.path.exists("/proc/self"):
        raise Blocked("still mounted")
    return "/proc is gone"


def pivot_root() -> str:
    _apart()
    os.chdir(_tmpfs())
    syscall(_PIVOT_ROOT, b".", b".")
    if os.listdir("/"):
        raise Blocked("the same root")
    return "a root of its own"


def pivot_root_in_place() -> str:
    """As it is, without a mount: EINVAL and EBUSY come after the permission."""
    _apart()
    try:
        syscall(_PIVOT_ROOT, b".", b".")
    except OSError as error:
        if error.errno not in {errno.EBUSY, errno.EINVAL}:
            raise
    return "it looked for a mount"


def chroot() -> str:
    _apart()
    place = _place()
    os.chroot(place)
    os.chdir("/")
    if os.listdir("/"):
        raise Blocked("the same root")
    return f"/ is {place}"


def _new_file_system() -> int:
    return syscall(_FSOPEN, b"tmpfs", 0)


def fsopen() -> str:
    _apart()
    return f"a context to make a file system in, {_new_file_system()}"


def fsmount() -> str:
    _apart()
    context = _new_file_system()
    syscall(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
    mount = syscall(_FSMOUNT, context, 0, 0)
    place = _place()
    syscall(_MOVE_MOUNT, mount, b"", _AT_FDCWD, place.encode(), _MOVE_MOUNT_F_EMPTY_PATH)
    return _mounted(place)


def move_mount_of_nothing() -> str:
    """EINVAL for what is no mount comes after the permission."""
    _apart()
    here, there = _place().encode(), _place().encode()
    try:
        syscall(_MOVE_MOUNT, _AT_FDCWD, here, _AT_FDCWD, there, 0)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return "it looked for a mount"


def fspick() -> str:
    _apart()
    return f"a context to reconfigure / in, {syscall(_FSPICK, _AT_FDCWD, b'/', 0)}"


def open_tree() -> str:
    _apart()
    return _all(syscall(_OPEN_TREE, _AT_FDCWD, b"/", _WHOLE_COPY))


def _all(tree: int) -> str:
    return f"a copy of all that is mounted: {sorted(os.listdir(f'/proc/self/fd/{tree}'))[:4]}"


def _read_only() -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(struct.pack("=4Q", _MOUNT_ATTR_RDONLY, 0, 0, 0), 32)


def mount_setattr() -> str:
    """On a directory that is no mount point: EINVAL comes after the permission."""
    _apart()
    try:
        syscall(_MOUNT_SETATTR, _AT_FDCWD, _place().encode(), 0, _read_only(), 32)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return "it looked for a mount"


def open_tree_attr() -> str:
    """The one of Linux 6.15, which many lists do not have yet."""
    _apart()
    return _all(syscall(_OPEN_TREE_ATTR, _AT_FDCWD, b"/", _WHOLE_COPY, _read_only(), 32))


attempt(
    {
        "mount": tmpfs,
        "bind": bind,
        "remount": remount_root_writable,
        "umount2": uncover,
        "pivot_root": pivot_root,
        "pivot_root_in_place": pivot_root_in_place,
        "chroot": chroot,
        "fsopen": fsopen,
        "fsmount": fsmount,
        "move_mount": move_mount_of_nothing,
        "fspick": fspick,
        "open_tree": open_tree,
        "mount_setattr": mount_setattr,
        "open_tree_attr": open_tree_attr,
    }
)
