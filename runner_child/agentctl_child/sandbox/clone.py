"""A fork into new namespaces, with a pidfd, directly into a cgroup.

It uses clone3 and not unshare + fork, so that the caller itself stays outside the namespaces.
After unshare(NEWUSER) in the warden, inner uid 0 could open the warden's /proc/<pid>/mem. With
clone the agent never sees it.
"""

import ctypes
import errno
import os
import signal
import struct
from typing import Final

from agentctl_child.sandbox import syscalls

NEW_MOUNTS: Final = 0x0002_0000
NEW_CGROUPS: Final = 0x0200_0000
NEW_UTS: Final = 0x0400_0000
NEW_IPC: Final = 0x0800_0000
NEW_USER: Final = 0x1000_0000
NEW_PIDS: Final = 0x2000_0000
NEW_NETWORK: Final = 0x4000_0000
_PIDFD: Final = 0x0000_1000
_CHILD_CLEARTID: Final = 0x0020_0000
_CHILD_SETTID: Final = 0x0100_0000
_INTO_CGROUP: Final = 0x2_0000_0000
_PR_GET_TID_ADDRESS: Final = 40

# PyDLL keeps the interpreter lock during the call: between clone and the child's
# PyOS_AfterFork_Child no other Python code may run.
_syscall = ctypes.PyDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long
_before_fork = ctypes.pythonapi.PyOS_BeforeFork
_after_fork_in_parent = ctypes.pythonapi.PyOS_AfterFork_Parent
_after_fork_in_child = ctypes.pythonapi.PyOS_AfterFork_Child
for _hook in (_before_fork, _after_fork_in_parent, _after_fork_in_child):
    _hook.restype = None
    _hook.argtypes = []


def _thread_id_address() -> int:
    """Return the address at which glibc keeps our thread id.

    glibc's own fork gives it to the kernel. Without it the child's cached id is the parent's, and
    abort() and mutexes misbehave. Returns zero if the kernel lacks CONFIG_CHECKPOINT_RESTORE.
    """
    address = ctypes.c_void_p()
    try:
        syscalls.prctl("PR_GET_TID_ADDRESS", _PR_GET_TID_ADDRESS, ctypes.byref(address))
    except OSError:
        return 0
    return address.value or 0


_TID_ADDRESS: Final = _thread_id_address()
_CHILD_TID: Final = (_CHILD_SETTID | _CHILD_CLEARTID) if _TID_ADDRESS else 0


def fork(namespaces: int = 0, cgroup: int | None = None) -> tuple[int, int]:
    """Fork; the parent gets the child's pid and a pidfd, the child gets (0, -1).

    ``namespaces``: flags of the NEW_* above. ``cgroup``: descriptor of the cgroup v2 directory
    that the child starts in. Raises OSError; then there is no child.
    """
    try:
        return syscalls.uninterrupted("clone3", lambda: _clone3(namespaces, cgroup))
    except OSError as error:
        # A container's seccomp profile answers ENOSYS (docker) or EPERM to clone3, because it
        # cannot see the flags. clone itself may be allowed.
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    pid, pidfd = syscalls.uninterrupted("clone", lambda: _clone(namespaces))
    if pid == 0 and cgroup is not None:
        join_cgroup(cgroup)
    return pid, pidfd


def join_cgroup(cgroup: int) -> None:
    """Move this process into the cgroup of an open directory."""
    members = os.open("cgroup.procs", os.O_WRONLY | os.O_CLOEXEC, dir_fd=cgroup)
    try:
        os.write(members, b"0")
    finally:
        os.close(members)


def _clone3(namespaces: int, cgroup: int | None) -> tuple[int, int]:
    pidfd = ctypes.c_int(-1)
    flags = namespaces | _PIDFD | _CHILD_TID | (0 if cgroup is None else _INTO_CGROUP)
    # struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size,
    # tls, set_tid, set_tid_size, cgroup.
    arguments = ctypes.create_string_buffer(
        struct.pack(
            "=11Q",
            flags,
            ctypes.addressof(pidfd),
            _TID_ADDRESS,
            0,
            signal.SIGCHLD,
            *(0, 0, 0, 0, 0),
            cgroup or 0,
        ),
        88,
    )
    return _forked(pidfd, syscalls.CLONE3, arguments, ctypes.c_long(88))


def _clone(namespaces: int) -> tuple[int, int]:
    pidfd = ctypes.c_int(-1)
    flags = ctypes.c_ulong(namespaces | _PIDFD | _CHILD_TID | signal.SIGCHLD)
    parent_tid, no_tls = ctypes.byref(pidfd), ctypes.c_long(0)
    child_tid = ctypes.c_long(_TID_ADDRESS)
    # The order of the last two arguments depends on the architecture: clone(2).
    last = (no_tls, child_tid) if os.uname().machine == "aarch64" else (child_tid, no_tls)
    return _forked(pidfd, syscalls.CLONE, flags, ctypes.c_long(0), parent_tid, *last)


def _forked(pidfd: ctypes.c_int, number: int, *arguments: object) -> tuple[int, int]:
    _before_fork()
    pid = _syscall(ctypes.c_long(number), *arguments)
    if pid == 0:
        _after_fork_in_child()
        return 0, -1
    failure = ctypes.get_errno()
    _after_fork_in_parent()
    if pid < 0:
        raise OSError(failure, f"clone: {os.strerror(failure)}")
    return pid, pidfd.value
