"""Write to the settings of the kernel, as host uid 0 in a user namespace too: refused.

core_pattern names a program that the kernel starts as root of the host.  Two well-known
sandboxes leave it writable where root started them, as its permission asks for the uid alone.
Each is written with the value that it has.
"""

import errno
import os
from collections.abc import Callable

from attempt import Blocked, attempt, libc, may_lack, only_root

_NEWUSER = 0x1000_0000
#: Root of a container may lack the setting, or the right to it.
_LACKING = (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS)


def _again(path: str) -> str:
    with may_lack(path, *_LACKING):
        with open(path, "rb", buffering=0) as file:
            value = file.read()
        with open(path, "wb", buffering=0) as file:
            file.write(value)
    return f"{path} is {value.decode().strip()!r} again"


def _write(path: str) -> Callable[[], str]:
    def write() -> str:
        only_root()
        return _again(path)

    return write


def _write_in_a_user_namespace(path: str) -> Callable[[], str]:
    """Without any capability of the host's, but with its uid."""

    def write() -> str:
        only_root()
        libc.unshare(_NEWUSER)
        return _again(path)

    return write


def _open_to_write(path: str) -> Callable[[], str]:
    """What has no value to write again is opened only."""

    def opened() -> str:
        only_root()
        with may_lack(path, *_LACKING):
            os.close(os.open(path, os.O_WRONLY))
        return f"{path} may be written"

    return opened


def spare_oneself() -> str:
    """Whatever is short of memory, others are killed."""
    only_root()
    with may_lack("CAP_SYS_RESOURCE", *_LACKING), open("/proc/self/oom_score_adj", "w") as file:
        file.write("-1000")
    with open("/proc/self/oom_score_adj") as file:
        value = file.read().strip()
    if value != "-1000":
        raise Blocked(f"it is {value}")
    return "never killed for memory"


attempt(
    {
        "core_pattern": _write("/proc/sys/kernel/core_pattern"),
        "core_pattern_by_uid": _write_in_a_user_namespace("/proc/sys/kernel/core_pattern"),
        "modprobe": _write("/proc/sys/kernel/modprobe"),
        "randomize": _write("/proc/sys/kernel/randomize_va_space"),
        "user_namespaces": _write("/proc/sys/user/max_user_namespaces"),
        "memory": _write("/proc/sys/vm/overcommit_memory"),
        "links": _write("/proc/sys/fs/protected_hardlinks"),
        "network": _write("/proc/sys/net/ipv4/ip_default_ttl"),
        "host_name": _write("/proc/sys/kernel/hostname"),
        "binfmt": _open_to_write("/proc/sys/fs/binfmt_misc/register"),
        "sysrq": _open_to_write("/proc/sysrq-trigger"),
        "interrupts": _write("/proc/irq/default_smp_affinity"),
        "uevent_helper": _write("/sys/kernel/uevent_helper"),
        "huge_pages": _open_to_write("/sys/kernel/mm/transparent_hugepage/enabled"),
        "power": _open_to_write("/sys/power/state"),
        "oom_score_adj": spare_oneself,
    }
)
