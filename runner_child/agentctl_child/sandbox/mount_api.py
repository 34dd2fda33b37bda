"""Mounts by descriptor: open_tree, mount_setattr, fsopen and move_mount (Linux 5.12).

A mount is made detached. It gets its attributes while no process can see it, and is then attached
to a directory that is already open. So nothing is ever mounted with too many rights, and no path
can be exchanged between a check and its use.

All of this needs CAP_SYS_ADMIN over the mount namespace. Root has it; an ordinary user has it in a
user namespace. It acts on the caller's own mount namespace only.
"""

import os
import struct
from collections.abc import Mapping
from typing import Final

from agentctl_child.sandbox import syscalls

READ_ONLY: Final = 0x0000_0001
NO_SUID: Final = 0x0000_0002
NO_DEV: Final = 0x0000_0004
NO_EXEC: Final = 0x0000_0008
_ID_MAPPED: Final = 0x0010_0000

_HERE: Final = -100  # AT_FDCWD
_EMPTY_PATH: Final = 0x1000
_RECURSIVE: Final = 0x8000
_CLONE: Final = 1
_CLOSE_ON_EXEC: Final = os.O_CLOEXEC
_CLOSE_ON_EXEC_FS: Final = 1  # FSOPEN_CLOEXEC and FSMOUNT_CLOEXEC
_PRIVATE: Final = 1 << 18
_SET_STRING: Final = 1
_CREATE: Final = 6
_FROM_DESCRIPTOR: Final = 0x04
_TO_DESCRIPTOR: Final = 0x40
_DETACH: Final = 2  # MNT_DETACH


def stop_propagation() -> None:
    """Separate every mount of this namespace from the host's, in both directions."""
    _set_attributes(_HERE, b"/", _RECURSIVE, propagation=_PRIVATE)


def clone_tree(place: int, *, recursive: bool = True) -> int:
    """Return a detached copy of the mount at an open file or directory, and of mounts beneath it.

    Only root can leave out the mounts beneath. A user namespace must not uncover what was covered
    by a mount, so the kernel gives it such a mount only as a whole.
    """
    return syscalls.syscall(
        "open_tree",
        syscalls.OPEN_TREE,
        place,
        b"",
        _CLONE | _CLOSE_ON_EXEC | _EMPTY_PATH | (_RECURSIVE if recursive else 0),
    )


def restrict(mount: int, attributes: int) -> None:
    """Add attributes to one mount."""
    _set_attributes(mount, b"", _EMPTY_PATH, attributes)


def restrict_tree(mount: int, attributes: int) -> None:
    """Add attributes to a mount and all mounts beneath it; attributes can only be added."""
    _set_attributes(mount, b"", _EMPTY_PATH | _RECURSIVE, attributes)


def map_owners(mount: int, user_namespace: int, *, recursive: bool) -> None:
    """Show and store the owners of files as the id map of a user namespace translates them.

    Works only on a detached mount. EINVAL: the file system does not support it.
    """
    flags = _EMPTY_PATH | (_RECURSIVE if recursive else 0)
    _set_attributes(mount, b"", flags, _ID_MAPPED, user_namespace=user_namespace)


def _set_attributes(
    place: int,
    path: bytes,
    flags: int,
    attributes: int = 0,
    *,
    propagation: int = 0,
    user_namespace: int = 0,
) -> None:
    # struct mount_attr: attr_set, attr_clr, propagation, userns_fd.
    attr = struct.pack("=4Q", attributes, 0, propagation, user_namespace)
    syscalls.syscall("mount_setattr", syscalls.MOUNT_SETATTR, place, path, flags, attr, len(attr))


def new_filesystem(
    kind: bytes, attributes: int, options: Mapping[bytes, bytes] | None = None
) -> int:
    """Return a detached mount of a new instance of one of the kernel's own file systems."""
    context = syscalls.syscall("fsopen", syscalls.FSOPEN, kind, _CLOSE_ON_EXEC_FS)
    try:
        for name, value in (options or {}).items():
            _configure(context, _SET_STRING, name, value)
        _configure(context, _CREATE, None, None)
        return syscalls.syscall("fsmount", syscalls.FSMOUNT, context, _CLOSE_ON_EXEC_FS, attributes)
    finally:
        os.close(context)


def _configure(context: int, command: int, name: bytes | None, value: bytes | None) -> None:
    syscalls.syscall("fsconfig", syscalls.FSCONFIG, context, command, name, value, 0)


def attach(mount: int, place: int) -> None:
    """Attach a detached mount to an open file or directory."""
    syscalls.syscall(
        "move_mount",
        syscalls.MOVE_MOUNT,
        mount,
        b"",
        place,
        b"",
        _FROM_DESCRIPTOR | _TO_DESCRIPTOR,
    )


def enter_root(root: int) -> None:
    """Make a mount the root of this process and its namespace, and detach the old root.

    pivot_root(2), its last example: the old and the new root may be one directory; the old root
    then lies on top. Afterwards everything that was mounted before is gone from the namespace,
    with all that it led to.
    """
    syscalls.call("fchdir", os.fchdir, root)
    syscalls.syscall("pivot_root", syscalls.PIVOT_ROOT, b".", b".")
    syscalls.unmount(b".", _DETACH)
    syscalls.call("chdir", os.chdir, "/")
