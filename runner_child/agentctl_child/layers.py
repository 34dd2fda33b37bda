"""Which protections hold, as the kernel tells a process about itself.

Nothing here knows what was attempted.  The exceptions are Landlock, which has no
way to be read back, so that it is tried (`Sealing`), and the subreaper, which only
the warden can ask the kernel about.
"""

import os
from typing import Final, NamedTuple

from agentctl_child.sandbox import namespaces, rlimits

PID_NAMESPACE: Final = "pid namespace"
USER_NAMESPACE: Final = "user namespace"
MOUNT_NAMESPACE: Final = "mount namespace"
READ_ONLY_PROC: Final = "read-only /proc"
CGROUP: Final = "cgroup"
SUBREAPER: Final = "subreaper"
LANDLOCK: Final = "landlock signal scope"
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
    layers = []
    contained = inside.pid_namespace != outside.pid_namespace
    if contained:
        layers.append(PID_NAMESPACE)
    if inside.user_namespace != outside.user_namespace:
        layers.append(USER_NAMESPACE)
    if inside.mount_namespace != outside.mount_namespace:
        layers.append(MOUNT_NAMESPACE)
    if os.statvfs("/proc").f_flag & os.ST_RDONLY:
        layers.append(READ_ONLY_PROC)
    if inside.cgroup != outside.cgroup:
        layers.append(CGROUP)
    if subreaper:
        layers.append(SUBREAPER)
    if landlock:
        layers.append(LANDLOCK)
    filtered = inside.seccomp == _FILTERING and outside.seccomp != _FILTERING
    if filtered:
        layers.append(SECCOMP)
    if inside.no_new_privileges:
        layers.append(NO_NEW_PRIVILEGES)
    if not inside.permitted | inside.gainable:
        layers.append(NO_CAPABILITIES)
    elif (outside.permitted | outside.gainable) & ~(inside.permitted | inside.gainable):
        layers.append(REDUCED_CAPABILITIES)
    if inside.uid != outside.uid:
        layers.append(OWN_UID)
    if inside.uid != 0 and inside.process_limit != outside.process_limit:
        layers.append(PROCESS_LIMIT)
    if not (contained or filtered or (inside.uid != outside.uid and outside.uid == 0)):
        layers.append(EXPOSED_KEEPERS)
    return tuple(layers)
