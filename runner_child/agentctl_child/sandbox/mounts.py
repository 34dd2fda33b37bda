"""The agent's view of the kernel's own file systems: its own /proc, all of it read-only."""

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

    Only for the first process of a new pid and mount namespace. If the agent saw the host's /proc,
    it could still write its keepers' oom_score_adj. With a writable /proc, root in a user
    namespace could write /proc/sys.
    """
    # Slave, not private: an unmount on the host reaches us, so that we never keep its disks busy.
    # Nothing of ours reaches the host.
    syscalls.mount(b"none", b"/", None, _RECURSIVE | _SLAVE)
    syscalls.mount(b"proc", b"/proc", b"proc", _READ_ONLY | _NO_SUID | _NO_DEV | _NO_EXEC)


def make_cgroups_read_only() -> None:
    """Make all control groups read-only for the agent.

    Only in a mount namespace of our own. Root owns the files of control groups, and a user owns
    those that systemd delegates. Such an owner could freeze the group of its keepers, and with
    them every timer and every stop. It could also leave its run's group and freeze that.

    The agent can still reach a group below its own, by a mount in namespaces of its own.
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
            # Covered by another mount, so no process can get there.
            if error.errno not in (errno.ENOENT, errno.EINVAL):
                raise
