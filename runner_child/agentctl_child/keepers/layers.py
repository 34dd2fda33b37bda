"""The protections that hold around a process, as the kernel reports them to the process itself.

Nothing here depends on what was attempted, except the facts in `Tried`. Landlock cannot be read
back, so it is tested. Only the warden can ask the kernel about the subreaper. The kernel counts
seccomp filters but does not name them.
"""

import os
from typing import Final, NamedTuple

from agentctl_child.keepers.steps import Fact
from agentctl_child.sandbox import mountinfo, namespaces, rlimits
from agentctl_child.sandbox.landlock import has_scopes
from agentctl_child.sandbox.private_root import SOURCE
from agentctl_protocol.vocabulary import CONFINED, Sandbox

PID_NAMESPACE: Final = "pid namespace"
USER_NAMESPACE: Final = "user namespace"
MOUNT_NAMESPACE: Final = "mount namespace"
READ_ONLY_PROC: Final = "read-only /proc"
CGROUP: Final = "cgroup"
SUBREAPER: Final = "subreaper"
LANDLOCK: Final = "landlock domain"
SIGNAL_SCOPE: Final = "landlock signal scope"
SECCOMP: Final = "seccomp keeper filter"
SURFACE: Final = "seccomp surface filter"
NETWORK_NAMESPACE: Final = "network namespace"
IPC_NAMESPACE: Final = "ipc namespace"
HOST_NAME_NAMESPACE: Final = "uts namespace"
CGROUP_NAMESPACE: Final = "cgroup namespace"
PRIVATE_ROOT: Final = "private read-only root"
NO_CORE_DUMPS: Final = "no core dumps"
NO_NEW_PRIVILEGES: Final = "no new privileges"
NO_CAPABILITIES: Final = "no capabilities"
REDUCED_CAPABILITIES: Final = "reduced capabilities"
OWN_UID: Final = "own uid"
PROCESS_LIMIT: Final = "process limit"
SCHEDULED_BELOW: Final = "scheduled below its keepers"
EXPOSED_KEEPERS: Final = "agent can kill its keepers"

_NAMESPACES: Final = {
    "pid": PID_NAMESPACE,
    "user": USER_NAMESPACE,
    "mnt": MOUNT_NAMESPACE,
    "net": NETWORK_NAMESPACE,
    "ipc": IPC_NAMESPACE,
    "uts": HOST_NAME_NAMESPACE,
    "cgroup": CGROUP_NAMESPACE,
}
_FILTERING: Final = b"2"  # Seccomp: of /proc/<pid>/status


class Surroundings(NamedTuple):
    """The position and the privileges of a process, as it sees them itself."""

    namespaces: dict[str, int]
    cgroup: bytes
    uid: int
    permitted: int
    gainable: int
    no_new_privileges: bool
    filters: int
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
        namespaces={kind: namespaces.inode(kind) for kind in _NAMESPACES},
        cgroup=unified_cgroup(),
        uid=int(status[b"Uid"].split()[0]),
        permitted=permitted,
        # The bounding set does not matter if no exec can add to the held capabilities.
        gainable=0 if no_new_privileges else int(status[b"CapBnd"], 16),
        no_new_privileges=no_new_privileges,
        # The kernel reports the number of filters since Linux 5.9.
        filters=int(status.get(b"Seccomp_filters", b"1"))
        if status.get(b"Seccomp") == _FILTERING
        else 0,
        process_limit=rlimits.process_limit(),
    )


def unified_cgroup() -> bytes:
    """Return our cgroup of version 2, as far as our cgroup namespace shows its name."""
    try:
        with open("/proc/self/cgroup", "rb") as file:
            lines = file.read().splitlines()
    except OSError:
        return b""
    return next((line[3:] for line in lines if line.startswith(b"0::")), b"")


class Tried(NamedTuple):
    """The facts that cannot be read back, and were requested or tested instead.

    ``landlock``: a domain was entered. ``landlock_words``: more facts about that domain.
    ``filters``: the names of the installed seccomp filters. The kernel's count is read back and
    must have grown by their number. ``cgroup``: our group, read before a cgroup namespace hid it.
    """

    cgroup: bytes | None = None
    subreaper: bool = False
    landlock: bool = False
    landlock_words: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()


def read_back(outside: Surroundings, tried: Tried) -> tuple[str, ...]:
    """Return the layers around this process, compared with what its keepers saw ``outside``."""
    inside = observe()
    held = inside.permitted | inside.gainable
    had = outside.permitted | outside.gainable
    apart = {kind for kind in _NAMESPACES if inside.namespaces[kind] != outside.namespaces[kind]}
    filtered = inside.filters - outside.filters >= len(tried.filters)
    own_uid = inside.uid != outside.uid
    limited = inside.uid != 0 and inside.process_limit != outside.process_limit
    found = {
        **{_NAMESPACES[kind]: kind in apart for kind in _NAMESPACES},
        PRIVATE_ROOT: _is_private_root(),
        READ_ONLY_PROC: bool(os.statvfs("/proc").f_flag & os.ST_RDONLY),
        CGROUP: (inside.cgroup if tried.cgroup is None else tried.cgroup) != outside.cgroup,
        SUBREAPER: tried.subreaper,
        LANDLOCK: tried.landlock,
        SIGNAL_SCOPE: tried.landlock and has_scopes(),
        **dict.fromkeys(tried.landlock_words, tried.landlock),
        **dict.fromkeys(tried.filters, filtered),
        NO_NEW_PRIVILEGES: inside.no_new_privileges,
        NO_CAPABILITIES: not held,
        REDUCED_CAPABILITIES: bool(held and had & ~held),
        OWN_UID: own_uid,
        PROCESS_LIMIT: limited,
        NO_CORE_DUMPS: rlimits.core_limit() == rlimits.NO_DUMP,
        # Without a Landlock domain, a process can write the memory of a supervisor of the same
        # uid.
        EXPOSED_KEEPERS: not (
            "pid" in apart
            or (filtered and bool(tried.filters) and tried.landlock)
            or (own_uid and outside.uid == 0)
        ),
    }
    return tuple(layer for layer, holds in found.items() if holds)


def _is_private_root() -> bool:
    """True if the root is a private root of ours and is mounted read-only."""
    *_, root = [mount for mount in mountinfo.mounts() if mount.place == b"/"]
    return root.kind == b"tmpfs" and root.source == SOURCE and b"ro" in root.options


def promised(level: Sandbox, facts: frozenset[Fact]) -> tuple[str, ...]:
    """Return the layers without which a run at a level must not start."""
    if level not in CONFINED:
        return ()
    layers = [LANDLOCK, SURFACE, NO_NEW_PRIVILEGES]
    if "own uid" in facts:
        layers.append(OWN_UID)
    if "pid namespace" in facts:
        layers += [PID_NAMESPACE, MOUNT_NAMESPACE, READ_ONLY_PROC]
    if "user namespace" in facts:
        layers += [USER_NAMESPACE, NO_CAPABILITIES]
    if level is Sandbox.STRICT:
        layers += [IPC_NAMESPACE, HOST_NAME_NAMESPACE, CGROUP_NAMESPACE, PRIVATE_ROOT]
        layers += [NO_CAPABILITIES, NO_CORE_DUMPS]
        layers += [NETWORK_NAMESPACE] if "network none" in facts else []
    return tuple(layers)
