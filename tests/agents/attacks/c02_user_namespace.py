"""Become root of a user namespace, by unshare, clone and clone3: refused, all three.

In a namespace of its own a program has every capability over what it makes there; most
holes in the kernel of the last years are reached that way.
"""

import ctypes
import os
import signal
import struct
from collections.abc import Callable

from attempt import Blocked, attempt, checked, libc, only_root, syscall

_CLONE, _CLONE3 = 56, 435
_NEWUSER = 0x1000_0000
#: What a caller with capabilities needs no user namespace for.
_OTHERS = {
    "mnt": 0x0002_0000,
    "cgroup": 0x0200_0000,
    "uts": 0x0400_0000,
    "ipc": 0x0800_0000,
    "pid_for_children": 0x2000_0000,
    "net": 0x4000_0000,
    "time_for_children": 0x0000_0080,
}


def _namespace(kind: str = "user") -> str:
    return os.readlink(f"/proc/self/ns/{kind}")


def _changed(before: str, kind: str = "user") -> str:
    try:
        after = _namespace(kind)
    except FileNotFoundError:  # the one for children is made with the first of them
        after = "a new one"
    if after == before:
        raise Blocked("no error, and the same namespace as before")
    return f"{before} became {after}"


def by_unshare() -> str:
    before = _namespace()
    checked(libc.unshare(_NEWUSER))
    return _changed(before)


def others_by_unshare() -> str:
    only_root()
    got = []
    for kind, flag in _OTHERS.items():
        before = _namespace(kind)
        try:
            checked(libc.unshare(flag))
        except OSError as error:
            refused = error
        else:
            got.append(_changed(before, kind))
    if not got:
        raise refused
    return ", ".join(got)


def _of_a_child(pid: int) -> str:
    """The user namespace of a child that waits; the child ends."""
    try:
        return os.readlink(f"/proc/{pid}/ns/user")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _by_clone(start: Callable[[], int]) -> str:
    before = _namespace()
    pid = start()
    if pid == 0:
        signal.pause()
        os._exit(0)
    after = _of_a_child(pid)
    if after == before:
        raise Blocked("a child, in the same namespace")
    return f"a child in {after}"


def by_clone() -> str:
    return _by_clone(lambda: syscall(_CLONE, _NEWUSER | signal.SIGCHLD, 0, 0, 0, 0))


def by_clone_with_high_bits() -> str:
    """The kernel reads 32 bits of the flags: a filter that compares 64 sees others."""
    return _by_clone(lambda: syscall(_CLONE, 1 << 32 | _NEWUSER | signal.SIGCHLD, 0, 0, 0, 0))


def by_clone3() -> str:
    # flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls
    arguments = ctypes.create_string_buffer(
        struct.pack("=8Q", _NEWUSER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 64
    )
    return _by_clone(lambda: syscall(_CLONE3, arguments, 64))


attempt(
    {
        "unshare": by_unshare,
        "clone": by_clone,
        "clone_high_bits": by_clone_with_high_bits,
        "clone3": by_clone3,
        "other_namespaces": others_by_unshare,
    }
)
