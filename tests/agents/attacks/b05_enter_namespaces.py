"""Enter the host's namespaces through a process of it: refused."""

import os

from attempt import FACTS, attempt, checked, libc, only_root

VICTIM = FACTS["victim_pid"]
_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWNET = 0x4000_0000
_CLONE_NEWPID = 0x2000_0000


def enter(name: str) -> None:
    only_root()
    descriptor = os.open(f"/proc/{VICTIM}/ns/{name}", os.O_RDONLY)
    checked(libc.setns(descriptor, 0))


def all_at_once() -> None:
    only_root()
    process = os.pidfd_open(VICTIM)
    checked(libc.setns(process, _CLONE_NEWNS | _CLONE_NEWNET | _CLONE_NEWPID))


attempt(
    {
        "mount": lambda: enter("mnt"),
        "pid": lambda: enter("pid"),
        "network": lambda: enter("net"),
        "ipc": lambda: enter("ipc"),
        "uts": lambda: enter("uts"),
        "cgroup": lambda: enter("cgroup"),
        "by pidfd": all_at_once,
    }
)
