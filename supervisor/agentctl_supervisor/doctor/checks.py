"""Judges the facts about a machine: what they mean for runs.  Pure functions."""

import re
from typing import Final

from agentctl_supervisor.doctor.check import Check, Status
from agentctl_supervisor.doctor.facts import Facts
from agentctl_supervisor.doctor.levels import levels, namespace_fixes
from agentctl_supervisor.filesystem.state_paths import MAX_SOCKET_PATH

_OLDEST_KERNEL: Final = (5, 15)
_SIGNAL_SCOPE_ABI: Final = 6
_NETWORK_FILESYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "glusterfs", "afs"}
)
_LITTLE_ROOM: Final = 100 << 20
_SLOW_START_S: Final = 2.0
_EARLIEST: Final = 1_700_000_000  # November 2023: before any version of this program


def judge(facts: Facts) -> list[Check]:
    """Return all checks, the most important first."""
    return [
        _kernel(facts),
        *levels(facts),
        _pid_namespace(facts),
        _sealing(facts),
        _cgroup(facts),
        _spawner(facts),
        _installation(facts),
        _state(facts),
        _runtime(facts),
        _inotify(facts),
        _clock(facts),
    ]


def _kernel(facts: Facts) -> Check:
    found = re.match(r"(\d+)\.(\d+)", facts.kernel)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST_KERNEL:
        return Check(
            "kernel",
            "fail",
            f"Linux {facts.kernel}",
            "older than 5.15: runs may fail to start",
            "boot a newer kernel",
        )
    return Check("kernel", "ok", f"Linux {facts.kernel}")


def _pid_namespace(facts: Facts) -> Check:
    name = "pid namespace"
    if facts.probe:
        return Check(
            name,
            "fail",
            f"the probe did not work: {facts.probe}",
            "no run can be started",
            "reinstall agentctl-supervisor for this interpreter",
        )
    if not facts.pid_namespace:
        kind = "as root" if facts.uid == 0 else "with a user namespace"
        return Check(name, "ok", f"runs are ended by the kernel as one ({kind})")
    fix = "\n".join(namespace_fixes(facts))
    if facts.sealed:
        return Check(
            name,
            "warn",
            f"none: {facts.pid_namespace}",
            "runs are held by a subreaper, sealed, with at most 256 processes",
            fix,
        )
    return Check(
        name,
        "fail",
        f"none: {facts.pid_namespace}",
        "only --sandbox none starts here, where a stop is best effort",
        fix,
    )


def _sealing(facts: Facts) -> Check:
    name = "sealing"
    landlock = f"Landlock ABI {facts.landlock_abi}" if facts.landlock_abi else "no Landlock"
    detail = f"{landlock}, {'seccomp' if facts.seccomp else 'no seccomp'}"
    if not facts.sealed:
        return Check(
            name,
            "warn",
            f"{detail}: the fallback cannot be sealed",
            "without a pid namespace, an agent could kill its keepers",
            "a kernel with seccomp and Landlock",
        )
    if facts.landlock_abi < _SIGNAL_SCOPE_ABI:
        return Check(name, "ok", f"{detail}: the fallback is sealed by seccomp alone")
    return Check(name, "ok", f"{detail}: the fallback is sealed")


def _cgroup(facts: Facts) -> Check:
    name = "cgroup v2"
    if facts.cgroup:
        limits = {"memory", "pids"} <= set(facts.controllers)
        kind = "with memory and pids" if limits else "without memory and pids controllers"
        return Check(name, "ok", f"a group for each run, ended by cgroup.kill ({kind})")
    if not facts.cgroup_mount:
        detail, fix = "not mounted", "sudo mount -t cgroup2 none /sys/fs/cgroup"
    else:
        detail, fix = f"no group can be made in {facts.cgroup_mount}", _cgroup_fix(facts)
    return Check(name, "warn", detail, "trees are killed through their keepers alone", fix)


def _cgroup_fix(facts: Facts) -> str:
    if facts.container:
        return "give the container a cgroup namespace, and /sys/fs/cgroup writable"
    delegated = "systemd-run --user --scope -p Delegate=yes agentctl ..."
    match facts.user_manager:
        case "running":
            return delegated
        case "not running":
            # Without a login session, as under cron or su, no user manager is started.
            return f"sudo loginctl enable-linger {facts.user}, and then {delegated}"
    return "a group of the caller's own below it: mkdir, chown, and write your pid to cgroup.procs"


def _spawner(facts: Facts) -> Check:
    if facts.spawner:
        return Check(
            "spawner",
            "fail",
            facts.spawner,
            "no run can be started",
            "AGENTCTL_DEBUG=1 agentctl run -- true shows why",
        )
    status: Status = "warn" if facts.spawner_s > _SLOW_START_S else "ok"
    return Check(
        "spawner",
        status,
        f"ready to fork runs after {facts.spawner_s:.2f} s",
        "the machine is slow now" if status == "warn" else "",
    )


def _installation(facts: Facts) -> Check:
    found = facts.distributions
    shown = ", ".join(f"{name} {number}" for name, number in found.items())
    if "agentctl-supervisor" in found and "agentctl-child" in found:
        return Check(
            "installation",
            "warn",
            f"{shown} in one environment",
            "both bring the same files; removing one breaks the other",
            "pip uninstall agentctl-child, then reinstall agentctl-supervisor",
        )
    return Check("installation", "ok", shown or "from its source tree")


def _state(facts: Facts) -> Check:
    place, name = facts.state, "state"
    if place.trouble:
        return Check(
            name,
            "fail",
            place.trouble,
            "no run can be kept",
            "set AGENTCTL_HOME to a directory of yours",
        )
    detail = f"{place.path} ({place.filesystem or 'unknown file system'})"
    if place.filesystem in _NETWORK_FILESYSTEMS:
        return Check(
            name,
            "warn",
            detail,
            "locks and durable logs depend on a server",
            "set AGENTCTL_HOME to a local directory",
        )
    if place.free_bytes < _LITTLE_ROOM:
        return Check(
            name,
            "warn",
            f"{detail}, {place.free_bytes >> 20} MiB free",
            "runs are stopped when their logs do not fit",
            "agentctl prune --older 7d",
        )
    return Check(name, "ok", detail)


def _runtime(facts: Facts) -> Check:
    place, name = facts.runtime, "sockets"
    if place.trouble:
        return Check(
            name,
            "fail",
            place.trouble,
            "no supervisor can be reached",
            "set AGENTCTL_HOME to a directory of yours",
        )
    if facts.longest_socket > MAX_SOCKET_PATH:
        return Check(
            name,
            "warn",
            f"{place.path} is too long for the path of a socket",
            "they are kept below /tmp instead",
            "set AGENTCTL_HOME to a shorter path",
        )
    return Check(name, "ok", place.path)


def _inotify(facts: Facts) -> Check:
    instances = facts.settings.get("fs/inotify/max_user_instances", 0)
    if instances < 16:
        return Check(
            "inotify",
            "warn",
            f"{instances} instances for each user",
            "logs -f and events -f may not work",
            "sudo sysctl fs.inotify.max_user_instances=128",
        )
    return Check("inotify", "ok", f"{instances} instances for each user")


def _clock(facts: Facts) -> Check:
    if facts.now < _EARLIEST:
        return Check(
            "clock",
            "warn",
            "it is in the past",
            "times in logs and reports are wrong; limits hold all the same",
            "sudo timedatectl set-ntp true",
        )
    if not facts.boot_id:
        return Check(
            "clock",
            "warn",
            "no boot id in /proc",
            "after a restart, lost runs are recognised by their processes alone",
            "mount /proc",
        )
    return Check("clock", "ok", "set; this boot has an id")
