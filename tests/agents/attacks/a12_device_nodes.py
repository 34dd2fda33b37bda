"""Make a device node in a writable directory and open it: refused."""

import errno
import os
import stat

from attempt import FACTS, attempt, may_lack, only_root


def made(directory: str, kind: int, number: int) -> None:
    only_root()
    path = f"{directory}/device-{os.getpid()}"
    os.mknod(path, kind | 0o666, number)
    try:
        # A container's device cgroup, or a kernel without /dev/mem.
        with may_lack("such device that can be opened", errno.EPERM, errno.ENXIO):
            os.close(os.open(path, os.O_RDONLY))
    finally:
        os.unlink(path)


def disk() -> int:
    """Some block device that is there."""
    with open("/proc/partitions") as file:
        for line in file.read().splitlines()[2:]:
            major, minor, *_ = line.split()
            return os.makedev(int(major), int(minor))
    return os.makedev(7, 0)


attempt(
    {
        "memory": lambda: made(FACTS["workspace"], stat.S_IFCHR, os.makedev(1, 1)),
        "null": lambda: made(FACTS["workspace"], stat.S_IFCHR, os.makedev(1, 3)),
        "disk": lambda: made(FACTS["workspace"], stat.S_IFBLK, disk()),
        "in /tmp": lambda: made("/tmp", stat.S_IFCHR, os.makedev(1, 3)),
        "in /dev/shm": lambda: made("/dev/shm", stat.S_IFCHR, os.makedev(1, 3)),
    }
)
