"""What a core dump of a run holds: nothing of its memory, core(5).

RLIMIT_CORE keeps a dump from being written to a file or a pipe.  It is not asked where
core_pattern names a socket (Linux 6.16; tried on 6.18 with limits of 0 and 1).
"""

import os
from typing import Final

from agentctl_child.sandbox import syscalls

_FILTER: Final = "/proc/self/coredump_filter"


def leave_memory_out() -> None:
    """Have no kind of memory dumped, for us and all that we will start.

    Inherited over fork and exec, so that it can only be changed by who may write to /proc.
    """
    try:
        descriptor = syscalls.call("open", os.open, _FILTER, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # a kernel that makes no dumps
        return
    try:
        syscalls.call("coredump_filter", os.write, descriptor, b"0")
    finally:
        os.close(descriptor)
