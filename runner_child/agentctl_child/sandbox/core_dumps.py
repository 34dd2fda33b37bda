"""The content of a run's core dump: nothing of its memory, core(5).

RLIMIT_CORE prevents a dump to a file or a pipe. The kernel ignores it if core_pattern names a
socket (Linux 6.16; tried on 6.18 with limits of 0 and 1).
"""

import os
from typing import Final

from agentctl_child.sandbox import syscalls

_FILTER: Final = "/proc/self/coredump_filter"


def leave_memory_out() -> None:
    """Let no kind of memory be dumped, for this process and all that it will start.

    The setting is inherited over fork and exec. Only a process that may write to /proc can change
    it.
    """
    try:
        descriptor = syscalls.call("open", os.open, _FILTER, os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # a kernel that makes no dumps
        return
    try:
        syscalls.call("coredump_filter", os.write, descriptor, b"0")
    finally:
        os.close(descriptor)
