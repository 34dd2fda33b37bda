"""User namespaces that keep ids unchanged, and the identity of our namespaces."""

import os

from agentctl_child.sandbox import clone, syscalls


def map_own_identity(uid: int, gid: int) -> None:
    """Give the user namespace that we were cloned into one user and one group: ours.

    This needs no privilege: a process may map its creator's own ids, once, after it has given up
    setgroups (user_namespaces(7)). The numbers are the same as outside, so no uid 0 appears
    inside. We must be dumpable, or the files belong to root.
    """
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        # A single write(2): the kernel accepts each of these files exactly once.
        path = f"/proc/self/{name}"
        descriptor = syscalls.call("open", os.open, path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            syscalls.call(name, os.write, descriptor, text.encode())
        finally:
            os.close(descriptor)


def hide_cgroups_above() -> None:
    """Make our own cgroup the root of all groups that we and our children can name.

    By unshare and not in the clone, so that our group's name outside can be read before. This
    changes nothing for other processes. It needs CAP_SYS_ADMIN in our user namespace.
    """
    syscalls.syscall("unshare", syscalls.UNSHARE, clone.NEW_CGROUPS)


def inode(kind: str) -> int:
    """Return the inode that identifies our namespace of a kind: ``pid``, ``user``, ``mnt``."""
    return os.stat(f"/proc/self/ns/{kind}").st_ino
