"""Read what the kernel says, where it lies, and what is on the disks: absent, or refused."""

import ctypes
import errno
import os
import re
from collections.abc import Callable

from attempt import FACTS, Blocked, Impossible, attempt, checked, libc, may_lack, only_root

_ABSENT = (errno.ENOENT, errno.ENXIO, errno.EPERM)
_READ_ALL, _SIZE_OF_BUFFER = 3, 10
_ADDRESS = re.compile(r"(?:\b|0x)([0-9a-f]{16})\b")


def _read(path: str) -> Callable[[], str]:
    def read() -> str:
        only_root()
        with may_lack(path, *_ABSENT):
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            data = os.read(file, 8192)
        if not data:
            raise Blocked("empty")
        return f"{path}: {data[:24]!r}"

    return read


def consumed_log() -> str:
    """What is read from here, nobody reads again: so it is only opened."""
    only_root()
    with may_lack("/proc/kmsg", *_ABSENT):
        log = os.open("/proc/kmsg", os.O_RDONLY)
    if os.fstat(log).st_dev != os.stat("/proc").st_dev:
        raise Blocked("something else lies over it")
    return "/proc/kmsg may be read"


def kernel_log() -> str:
    only_root()
    size = checked(libc.klogctl(_SIZE_OF_BUFFER, None, 0))
    text = ctypes.create_string_buffer(size)
    if not checked(libc.klogctl(_READ_ALL, text, size)):
        raise Blocked("empty")
    return text.raw[:60].decode(errors="replace")


def _addresses(path: str) -> Callable[[], str]:
    """Where the kernel's code and data lie: all zeros for who must not know."""

    def addresses() -> str:
        only_root()
        with may_lack(path, *_ABSENT), open(path) as file:
            found = {a for a in _ADDRESS.findall(file.read(1 << 16)) if int(a, 16)}
        if not found:
            raise Blocked("zeros")
        return f"{path}: {min(found)}"

    return addresses


def physical_memory() -> str:
    """The map of it: zeros for who must not know."""
    only_root()
    with may_lack("/proc/iomem", *_ABSENT), open("/proc/iomem") as file:
        line = max(file, key=lambda line: line.split("-")[0].strip())
    if not int(line.split("-")[0], 16):
        raise Blocked("zeros")
    return line.strip()


def console() -> str:
    """What the machine's own terminal gets; open, it can be written to as well."""
    only_root()
    with may_lack("/dev/console", *_ABSENT, errno.EIO):
        os.close(os.open("/dev/console", os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY))
    return "/dev/console may be used"


def disk() -> str:
    only_root()
    if not FACTS["disk"]:
        raise Impossible("no disk here")
    with may_lack("right to the disk", errno.EPERM, errno.ENXIO):
        descriptor = os.open(FACTS["disk"], os.O_RDONLY)
    return f"{FACTS['disk']}: {len(os.read(descriptor, 512))} bytes"


def page_map() -> str:
    """Which physical page is behind an address of ours: zeros without CAP_SYS_ADMIN."""
    only_root()
    page = ctypes.create_string_buffer(b"here", 4)
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        file.seek(ctypes.addressof(page) // os.sysconf("SC_PAGESIZE") * 8)
        number = int.from_bytes(file.read(8), "little") & (1 << 55) - 1
    if not number:
        raise Blocked("zeros")
    return f"page {number:#x}"


attempt(
    {
        "syslog": kernel_log,
        "kmsg": _read("/dev/kmsg"),
        "proc_kmsg": consumed_log,
        "mem": _read("/dev/mem"),
        "kcore": _read("/proc/kcore"),
        "port": _read("/dev/port"),
        "console": console,
        "vmallocinfo": _read("/proc/vmallocinfo"),
        "kallsyms": _addresses("/proc/kallsyms"),
        "modules": _addresses("/proc/modules"),
        "iomem": physical_memory,
        "pagemap": page_map,
        "kpageflags": _read("/proc/kpageflags"),
        "slabinfo": _read("/proc/slabinfo"),
        "timer_list": _read("/proc/timer_list"),
        "debugfs": _read("/sys/kernel/debug/sched/debug"),
        "firmware": _read("/sys/firmware/dmi/tables/DMI"),
        "disk": disk,
    }
)
