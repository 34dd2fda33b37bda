"""Checks if the sandbox levels work on this machine, and suggests fixes.  Pure functions."""

from collections.abc import Iterator
from typing import Final

from agentctl_protocol.vocabulary import CONFINED, Sandbox
from agentctl_supervisor.doctor.chain import Chain
from agentctl_supervisor.doctor.check import Check, Status
from agentctl_supervisor.doctor.facts import Facts

APPARMOR: Final = "kernel/apparmor_restrict_unprivileged_userns"
_CLONE: Final = "kernel/unprivileged_userns_clone"

_LANDLOCK_SINCE: Final = {
    "truncate": (3, "6.2"),
    "TCP": (4, "6.7"),
    "ioctl on devices": (5, "6.10"),
    "signals and abstract sockets": (6, "6.12"),
}
_LATER: Final = "socket files"
"""Landlock supports these since ABI 9 (Linux 7.1).  That is too new to warn if it is missing."""
_LATER_SINCE: Final = 9

_ROOT_NEEDS: Final = ("SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE")
"""The capabilities that root in a container needs in addition to docker's default set.

Tested with exactly these.
"""


def levels(facts: Facts) -> Iterator[Check]:
    """Yield a check for strict, one for standard, and one for the features of Landlock."""
    for level in CONFINED:
        yield _level(level, facts)
    yield _landlock(facts)


def _level(level: Sandbox, facts: Facts) -> Check:
    chain = facts.chains.get(level, Chain(trouble="it was not tried"))
    name = f"sandbox {level}"
    if chain.works:
        return Check(name, "ok", f"all {len(chain.steps)} steps, confirmed by the kernel")
    # The default level must work.  A user who chose a weaker level did so on purpose.
    status: Status = "fail" if facts.level is level else "warn"
    if chain.trouble:
        return Check(
            name,
            status,
            f"the probe did not work: {chain.trouble}",
            "it is not known whether runs start",
            _NOT_AS_THIS_ROOT
            if facts.uid == 0 and not facts.every_uid
            else "AGENTCTL_DEBUG=1 agentctl run -- true shows more",
        )
    step, why = chain.failed
    said = f"the sandbox's {step} cannot be set up: "
    return Check(
        name,
        status,
        f"{step}: {why.removeprefix(said)}",
        _consequence(level, facts),
        "\n".join(_fixes(chain, facts)),
    )


def _consequence(level: Sandbox, facts: Facts) -> str:
    refused = f"--sandbox {level} is refused"
    if facts.level is level:
        refused = "agentctl run is refused, unless a weaker level is named"
    weaker = facts.chains.get(Sandbox.STANDARD)
    if level is Sandbox.STRICT and weaker is not None and weaker.works:
        return f"{refused}; --sandbox standard works here"
    if not facts.pid_namespace or facts.sealed:
        return f"{refused}; --sandbox basic works here, which contains and does not confine"
    return refused


def _fixes(chain: Chain, facts: Facts) -> Iterator[str]:
    step, _ = chain.failed
    if step == "Landlock" and not facts.landlock_abi:
        yield from _landlock_fixes(facts)
    elif facts.uid == 0 and not facts.every_uid:
        yield _NOT_AS_THIS_ROOT
    elif step == "seccomp" and not facts.seccomp:
        yield "boot a kernel with CONFIG_SECCOMP_FILTER"
    elif chain.hint and not _is_about_namespaces(chain.hint):
        yield chain.hint
    elif step in _WITH_NAMESPACES or (step == "uid" and facts.uid == 0):
        yield from namespace_fixes(facts)


_NOT_AS_THIS_ROOT: Final = (
    "start agentctl as an ordinary user of this container, and not as its root"
)
"""The fix for root in a user namespace with few uids.

Each run that root starts gets a uid of its own, and this namespace does not have those uids.
"""


def _is_about_namespaces(hint: str) -> bool:
    """Return True if `namespace_fixes` says more than *hint*.

    Such a hint only refers to this command, or names only one of the possible causes.
    """
    return "agentctl doctor" in hint or "unmasked /proc" in hint


_WITH_NAMESPACES: Final = frozenset(
    {
        "namespaces",
        "identity",
        "loopback",
        "host name",
        "cgroup namespace",
        "private root",
        "own /proc",
        "control groups",
    }
)


def _landlock_fixes(facts: Facts) -> Iterator[str]:
    if facts.container in ("docker", "podman"):
        # A seccomp profile older than Landlock fails its system calls with ENOSYS or EPERM.
        yield f"{facts.container} run --security-opt seccomp=unconfined ..."
    yield _NO_LANDLOCK


_NO_LANDLOCK: Final = (
    "boot Linux 5.13 or newer with landlock in its list of modules: lsm=landlock,..."
    " on the kernel's command line (cat /sys/kernel/security/lsm shows the list)"
)


def namespace_fixes(facts: Facts) -> Iterator[str]:
    """Yield possible fixes for namespaces and their mounts, the most likely first."""
    forbidding = list(_settings(facts))
    yield from forbidding
    if facts.container:
        yield _container_fix(facts)
    elif forbidding:
        return
    elif facts.uid == 0:
        yield f"in a container: give it {', '.join(f'CAP_{name}' for name in _ROOT_NEEDS)}"
    else:
        yield "in a container: no seccomp profile, and nothing masked in /proc"


def _settings(facts: Facts) -> Iterator[str]:
    """Yield how to change the kernel settings that forbid namespaces."""
    settings = facts.settings
    for name, value in settings.items():
        if name.startswith("user/max_") and value == 0:
            yield f"sudo sysctl {name.replace('/', '.')}=10000"
    if facts.uid and settings.get(_CLONE) == 0:
        yield "sudo sysctl kernel.unprivileged_userns_clone=1"
    if facts.uid and settings.get(APPARMOR):
        yield "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
        yield (
            f"an AppArmor profile for {facts.python}: profile agentctl {facts.python}"
            " flags=(unconfined) { userns, }"
        )


def _container_fix(facts: Facts) -> str:
    if facts.container not in ("docker", "podman"):
        given = f"CAP_{', CAP_'.join(_ROOT_NEEDS)} and " if facts.uid == 0 else ""
        unmasked = "" if facts.uid == 0 else ", and nothing masked in /proc (procMount: Unmasked)"
        return f"start the container with {given}no seccomp profile{unmasked}"
    words = [f"{facts.container} run"]
    if facts.uid == 0:
        words += [f"--cap-add {name}" for name in _ROOT_NEEDS]
    options = ["seccomp=unconfined", "apparmor=unconfined"]
    if facts.uid:
        # In a user namespace, the kernel mounts a new /proc only if nothing hides a part of the
        # old one.
        options += ["unmask=ALL" if facts.container == "podman" else "systempaths=unconfined"]
    words += [f"--security-opt {option}" for option in options]
    return f"{' '.join(words)} ..."


def _landlock(facts: Facts) -> Check:
    name, abi = "Landlock", facts.landlock_abi
    if abi == 0:
        return Check(
            name,
            "fail" if facts.level in CONFINED else "warn",
            "none",
            "strict and standard are refused",
            "\n".join(_landlock_fixes(facts)),
        )
    missing = [what for what, (since, _) in _LANDLOCK_SINCE.items() if abi < since]
    if not missing:
        without = f", without {_LATER}" if abi < _LATER_SINCE else ""
        return Check(name, "ok", f"ABI {abi}{without}")
    return Check(
        name,
        "warn",
        f"ABI {abi}, without {', '.join(missing)}",
        "strict has other walls for these; standard forbids what it can by seccomp",
        f"boot Linux {_LANDLOCK_SINCE[missing[-1]][1]} or newer",
    )
