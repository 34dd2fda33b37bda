"""Count events by perf_event_open(2), of itself and of the whole machine: refused."""

import ctypes
import errno
import os
import struct

from attempt import Blocked, attempt, may_lack, only_root, syscall

_PERF_EVENT_OPEN = 298
_SOFTWARE, _CPU_CLOCK = 1, 0
_SIZE = 64
_EXCLUDE_KERNEL_AND_HYPERVISOR = 1 << 5 | 1 << 6


def _counter(pid: int, processor: int) -> int:
    """A descriptor that counts the time on the processor, in nanoseconds."""
    attributes = struct.pack(
        "=IIQQQQQ", _SOFTWARE, _SIZE, _CPU_CLOCK, 0, 0, 0, _EXCLUDE_KERNEL_AND_HYPERVISOR
    )
    event = ctypes.create_string_buffer(attributes, _SIZE)
    return syscall(_PERF_EVENT_OPEN, event, pid, processor, -1, 0)


def _counted(counter: int) -> str:
    sum(range(100_000))
    (count,) = struct.unpack("=Q", os.read(counter, 8))
    if count == 0:
        raise Blocked("a counter that stands still")
    return f"counted {count} ns"


def itself() -> str:
    # kernel.perf_event_paranoid may leave an ordinary user nothing, as Debian's does.
    with may_lack("counters for this user", errno.EACCES, errno.EPERM):
        return _counted(_counter(0, -1))


def everybody() -> str:
    only_root()
    return _counted(_counter(-1, 0))


attempt({"self": itself, "machine": everybody})
