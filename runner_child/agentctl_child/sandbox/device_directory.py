"""The minimal /dev of a run: the devices that programs need, and no hardware."""

import os
import stat
from collections.abc import Callable
from typing import Final

from agentctl_child.sandbox import beneath, mount_api, syscalls
from agentctl_child.sandbox.descriptors import closing

#: The name, and the device number that it must have: null(4), random(4), tty(4).
NODES: Final = (
    (b"null", os.makedev(1, 3)),
    (b"zero", os.makedev(1, 5)),
    (b"full", os.makedev(1, 7)),
    (b"random", os.makedev(1, 8)),
    (b"urandom", os.makedev(1, 9)),
    # Each process's own terminal; the agent starts without one.
    (b"tty", os.makedev(5, 0)),
)
_LINKS: Final = (
    (b"fd", b"/proc/self/fd"),
    (b"stdin", b"/proc/self/fd/0"),
    (b"stdout", b"/proc/self/fd/1"),
    (b"stderr", b"/proc/self/fd/2"),
    (b"ptmx", b"pts/ptmx"),
)
_DIRECTORY: Final = 0o755


def open_nodes() -> list[tuple[bytes, int]]:
    """Return the host's nodes, opened, with their names. Raises OSError.

    They are bound and not made by mknod(2): an ordinary user may not make devices, not even these.
    """
    nodes = []
    for name, number in NODES:
        node = beneath.open_place(b"/dev/" + name)
        nodes.append((name, node))
        found = os.fstat(node)
        if not stat.S_ISCHR(found.st_mode) or found.st_rdev != number:
            raise OSError(19, f"/dev/{name.decode()} is not what it should be")  # ENODEV
    return nodes


def fill(root: int, nodes: list[tuple[bytes, int]], mount: Callable[[int, bytes], None]) -> None:
    """Make ``dev`` in a directory, except its shm.

    ``mount`` attaches a detached mount to a path in that directory.
    """
    syscalls.call("mkdir", os.mkdir, b"dev", _DIRECTORY, dir_fd=root)
    for name, node in nodes:
        path = b"dev/" + name
        flags = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        os.close(syscalls.call("open", os.open, path, flags, 0o444, dir_fd=root))
        with closing(mount_api.clone_tree(node)) as tree:
            # Safe without nodev: it was checked to be one of the harmless six.
            mount_api.restrict_tree(tree, mount_api.NO_SUID | mount_api.NO_EXEC)
            mount(tree, path)
    for name, target in _LINKS:
        syscalls.call("symlink", os.symlink, target, b"dev/" + name, dir_fd=root)
    syscalls.call("mkdir", os.mkdir, b"dev/pts", _DIRECTORY, dir_fd=root)
    terminals = mount_api.new_filesystem(
        b"devpts",
        mount_api.NO_SUID | mount_api.NO_EXEC,
        {b"mode": b"620", b"ptmxmode": b"666"},
    )
    with closing(terminals):
        mount(terminals, b"dev/pts")
