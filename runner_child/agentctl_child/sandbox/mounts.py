"""The private view of /proc that a pid namespace never goes without."""

from typing import Final

from agentctl_child.sandbox import syscalls

_READ_ONLY: Final = 0x0001
_NO_SUID: Final = 0x0002
_NO_DEV: Final = 0x0004
_NO_EXEC: Final = 0x0008
_RECURSIVE: Final = 0x4000
_SLAVE: Final = 1 << 19


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
