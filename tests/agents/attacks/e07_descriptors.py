"""Open files until the machine has no more: each process has an end well before.

Also what counts for the user rather than the process: pages in pipes, beyond the kernel's bound.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import resource

from attempt import Blocked, attempt, checked, libc, may_lack, only_root, syscall

_BOUND = 65_536
_F_SETPIPE_SZ = 1031
_PRLIMIT64 = 302


def descriptors() -> str:
    """In one process, more than agentctl lets it have."""
    only_root()
    limits = (ctypes.c_uint64 * 2)(_BOUND + 1000, _BOUND + 1000)
    with may_lack("CAP_SYS_RESOURCE", errno.EPERM):
        syscall(_PRLIMIT64, 0, resource.RLIMIT_NOFILE, ctypes.byref(limits), None)
    null, count = os.open("/dev/null", os.O_RDONLY), 0
    try:
        for _ in range(_BOUND + 100):
            os.dup(null)
            count += 1
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
        raise Blocked(f"{count} and no more") from None
    return f"{count} descriptors"


def pipe() -> str:
    """Larger than who has no privileges may make one."""
    only_root()
    with open("/proc/sys/fs/pipe-max-size") as file:
        most = int(file.read())
    _, writing = os.pipe()
    with may_lack("CAP_SYS_RESOURCE", errno.EPERM):
        size = fcntl.fcntl(writing, _F_SETPIPE_SZ, 2 * most)
    if size <= most:
        raise Blocked(f"{size} bytes")
    return f"a pipe of {size} bytes"


def locked_memory() -> str:
    """Memory that can never be swapped."""
    only_root()
    memory = mmap.mmap(-1, 16 << 20)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    checked(libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(len(memory))))
    with open("/proc/self/status") as file:
        return next(line for line in file if line.startswith("VmLck:")).strip()


attempt({"descriptors": descriptors, "pipe": pipe, "mlock": locked_memory})
