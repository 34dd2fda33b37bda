"""What an agent sees of the kernel's own file systems: its own /proc, and nothing to write to."""

import errno
import struct
from typing import Final

from agentctl_child.sandbox import syscalls
from agentctl_child.sandbox.mountinfo import mounts

_READ_ONLY: Final = 0x0001
_NO_SUID: Final = 0x0002
_NO_DEV: Final = 0x0004
_NO_EXEC: Final = 0x0008
_RECURSIVE: Final = 0x4000
_SLAVE: Final = 1 << 19
_HERE: Final = -100  # AT_FDCWD
_ATTRIBUTES: Final = struct.pack("=4Q", 0x1, 0, 0, 0)  # struct mount_attr: set MOUNT_ATTR_RDONLY


def cover_proc() -> None:
    """Mount the /proc of our own pid namespace, read-only, over the host's.

    Only for the first process of a new pid and mount namespace.  With the host's
    /proc in sight the agent could still write its keepers' oom_score_adj; with a
    writable one a root in a user namespace could write /proc/sys.
    """
    # Slave, not private: an unmount on the host reaches us, so that we never keep
    # its disks busy; nothing of ours reaches the host.
    syscalls.mount(b"none", b"/", None, _RECURSIVE | _SLAVE)
    syscalls.mount(b"proc", b"/proc", b"proc", _READ_ONLY | _NO_SUID | _NO_DEV | _NO_EXEC)


def make_cgroups_read_only() -> None:
    """Take the agent's hands off all control groups.

    Only in a mount namespace of our own.  Who owns the files, as root does and a user
    those that systemd delegates, could freeze the group that its keepers are in, and
    with them every timer and every stop; or leave its run's group and freeze that.

    A group below its own it can still reach, by a mount in namespaces of its own.
    """
    for mount in [mount for mount in mounts() if mount.kind in (b"cgroup", b"cgroup2")]:
        try:
            syscalls.syscall(
                "mount_setattr",
                syscalls.MOUNT_SETATTR,
                _HERE,
                mount.place,
                0,
                _ATTRIBUTES,
                len(_ATTRIBUTES),
            )
        except OSError as error:
            # Covered by another mount, so that nobody gets there.
            if error.errno not in (errno.ENOENT, errno.EINVAL):
                raise
