"""Leave one's cgroup, make others, or have the host run a program when one is empty: refused.

The last is CVE-2022-0492: the kernel starts what release_agent names, as root of the host.
"""

import os
import signal
from collections.abc import Callable

from attempt import FACTS, Blocked, Impossible, attempt, only_root

_ROOT = FACTS["cgroup_root"]
_THEIRS = FACTS["cgroup"]


def _own() -> str:
    with open("/proc/self/cgroup") as file:
        return next(line.strip() for line in file if line.startswith("0::"))


def make() -> str:
    """In a cgroup that belongs to the caller."""
    path = os.path.join(_THEIRS, "made")
    os.mkdir(path)
    os.rmdir(path)
    return f"made {path}"


def leave() -> str:
    """To the root, where no limit is."""
    only_root()
    before = _own()
    with open(os.path.join(_THEIRS, "cgroup.procs"), "w") as file:
        file.write(str(os.getpid()))
    entered = _own()
    with open(os.path.join(_ROOT, "cgroup.procs"), "w") as file:
        file.write(str(os.getpid()))
    if entered == before or _own() == entered:
        raise Blocked(f"still in {_own()}")
    return f"from {before} to {entered} and {_own()}"


def kill() -> str:
    """Everybody in a cgroup of the caller's, whoever they are."""
    only_root()
    pid = os.fork()
    if pid == 0:
        try:
            with open(os.path.join(_THEIRS, "cgroup.procs"), "w") as file:
                file.write(str(os.getpid()))
            signal.pause()
        finally:
            os._exit(1)
    try:
        with open(os.path.join(_THEIRS, "cgroup.kill"), "w") as file:
            file.write("1")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return f"wrote to cgroup.kill of {_THEIRS}"


def _version_1_roots() -> list[str]:
    """Every v1 hierarchy, as it is mounted here; those of the host by the name they have there."""
    found = list(FACTS["cgroup1_roots"])
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            before, _, after = line.partition(" - ")
            if after.split()[0] == "cgroup":
                found.append(before.split()[4])
    return sorted(set(found))


def _in_version_1(act: Callable[[str], str]) -> Callable[[], str]:
    def acted() -> str:
        only_root()
        if not FACTS["cgroup1_roots"]:
            raise Impossible("no cgroup v1 here")
        refused: OSError | None = None
        for root in _version_1_roots():
            try:
                return act(root)
            except OSError as error:
                refused = error
        assert refused is not None
        raise refused

    return acted


def _release_agent(root: str) -> str:
    """What it is already is written again."""
    path = os.path.join(root, "release_agent")
    with open(path) as file:
        value = file.read()
    with open(path, "w") as file:
        file.write(value or "\n")
    return f"{path} is {value!r} again"


def _notify_on_release(root: str) -> str:
    path = os.path.join(root, "notify_on_release")
    with open(path) as file:
        value = file.read()
    with open(path, "w") as file:
        file.write(value)
    return f"{path} is {value.strip()} again"


attempt(
    {
        "make": make,
        "leave": leave,
        "kill": kill,
        "release_agent": _in_version_1(_release_agent),
        "notify_on_release": _in_version_1(_notify_on_release),
    }
)
