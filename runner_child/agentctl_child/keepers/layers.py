"""Which protections hold, as the kernel tells a process about itself.

Nothing here knows what was attempted.  The exceptions are Landlock, which has no
way to be read back, so that it is tried (`Sealing`), and the subreaper, which only
the warden can ask the kernel about.
"""

import os
from typing import Final, NamedTuple

from agentctl_child.sandbox import namespaces, rlimits
from agentctl_child.sandbox.landlock import has_signal_scope

PID_NAMESPACE: Final = "pid namespace"
USER_NAMESPACE: Final = "user namespace"
MOUNT_NAMESPACE: Final = "mount namespace"
READ_ONLY_PROC: Final = "read-only /proc"
CGROUP: Final = "cgroup"
SUBREAPER: Final = "subreaper"
LANDLOCK: Final = "landlock domain"
SIGNAL_SCOPE: Final = "landlock signal scope"
SECCOMP: Final = "seccomp keeper filter"
NO_NEW_PRIVILEGES: Final = "no new privileges"
NO_CAPABILITIES: Final = "no capabilities"
REDUCED_CAPABILITIES: Final = "reduced capabilities"
OWN_UID: Final = "own uid"
PROCESS_LIMIT: Final = "process limit"
EXPOSED_KEEPERS: Final = "agent can kill its keepers"

_FILTERING: Final = 2  # Seccomp: of /proc/<pid>/status


class Surroundings(NamedTuple):
    """What a process can say about where it is and what it may do."""

    pid_namespace: int
    user_namespace: int
    mount_namespace: int
    cgroup: bytes
    uid: int
    permitted: int
    gainable: int
    no_new_privileges: bool
    seccomp: int
    process_limit: int | None


def observe() -> Surroundings:
    """Ask the kernel about this process."""
    with open("/proc/self/status", "rb") as file:
        status = dict(line.split(b":\t", 1) for line in file.read().splitlines() if b":\t" in line)
    held = (status[b"CapPrm"], status[b"CapEff"], status[b"CapInh"], status[b"CapAmb"])
    permitted = 0
    for mask in held:
        permitted |= int(mask, 16)
    no_new_privileges = status.get(b"NoNewPrivs") == b"1"
    return Surroundings(
        pid_namespace=namespaces.inode("pid"),
        user_namespace=namespaces.inode("user"),
        mount_namespace=namespaces.inode("mnt"),
        cgroup=_unified_cgroup(),
        uid=int(status[b"Uid"].split()[0]),
        permitted=permitted,
        # The bounding set counts for nothing where no exec may add to what is held.
        gainable=0 if no_new_privileges else int(status[b"CapBnd"], 16),
        no_new_privileges=no_new_privileges,
        seccomp=int(status.get(b"Seccomp", b"0")),
        process_limit=rlimits.process_limit(),
    )


def _unified_cgroup() -> bytes:
    try:
        with open("/proc/self/cgroup", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return b""
    return next((line[3:] for line in lines if line.startswith(b"0::")), b"")


def read_back(outside: Surroundings, *, subreaper: bool, landlock: bool) -> tuple[str, ...]:
    """The layers around this process, compared with what its keepers saw ``outside``."""
    inside = observe()
    held = inside.permitted | inside.gainable
    had = outside.permitted | outside.gainable
    contained = inside.pid_namespace != outside.pid_namespace
    filtered = inside.seccomp == _FILTERING and outside.seccomp != _FILTERING
    own_uid = inside.uid != outside.uid
    limited = inside.uid != 0 and inside.process_limit != outside.process_limit
    found = {
        PID_NAMESPACE: contained,
        USER_NAMESPACE: inside.user_namespace != outside.user_namespace,
        MOUNT_NAMESPACE: inside.mount_namespace != outside.mount_namespace,
        READ_ONLY_PROC: bool(os.statvfs("/proc").f_flag & os.ST_RDONLY),
        CGROUP: inside.cgroup != outside.cgroup,
        SUBREAPER: subreaper,
        LANDLOCK: landlock,
        SIGNAL_SCOPE: landlock and has_signal_scope(),
        SECCOMP: filtered,
        NO_NEW_PRIVILEGES: inside.no_new_privileges,
        NO_CAPABILITIES: not held,
        REDUCED_CAPABILITIES: bool(held and had & ~held),
        OWN_UID: own_uid,
        PROCESS_LIMIT: limited,
        # Without a Landlock domain, the memory of a supervisor of the same uid can be written.
        EXPOSED_KEEPERS: not (
            contained or (filtered and landlock) or (own_uid and outside.uid == 0)
        ),
    }
    return tuple(layer for layer, holds in found.items() if holds)
