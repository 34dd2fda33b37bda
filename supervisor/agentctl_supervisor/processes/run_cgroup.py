"""Cgroup v2: one group a run, killed as one.

``cgroup.kill`` (kernel 5.14) ends every process of a group at once, whatever
it forks meanwhile; ``cgroup.events`` says when it is empty.  Both exist on a
hierarchy without any controller, too (seen on 6.18).  A group is an addition
to the containment, never the only one: where none can be made, the run goes
without and its report says so.
"""

import contextlib
import os
from pathlib import Path

from agentctl_supervisor.filesystem.mount_table import cgroup2_mount

_PREFIX = "agentctl-"


class RunCgroup:
    """The cgroup of one run, with a descriptor of its directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __repr__(self) -> str:
        return f"<RunCgroup {self.path}>"

    def kill(self) -> None:
        """SIGKILL every process of the group; a kernel before 5.14 cannot."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_text("1")

    def populated(self) -> bool:
        """Whether a process other than a zombie is in the group or below it."""
        try:
            return "populated 1" in (self.path / "cgroup.events").read_text()
        except OSError:
            return False

    def remove(self) -> None:
        """Close the descriptor and remove the group; a populated one is left for recovery."""
        os.close(self.fd)
        # A root agent may have made groups below: bottom-up, or rmdir gives EBUSY.
        for directory, _, _ in os.walk(self.path, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)


def make_run_cgroup(run_id: str) -> RunCgroup | None:
    """A new cgroup below our own for *run_id*, or None where none can be made."""
    own = _own_cgroup()
    if own is None:
        return None
    path = own / f"{_PREFIX}{run_id}"
    try:
        path.mkdir()
    except OSError:
        return None
    try:
        if not (path / "cgroup.kill").exists() or not os.access(path / "cgroup.procs", os.W_OK):
            raise OSError
        return RunCgroup(path)
    except OSError:
        with contextlib.suppress(OSError):
            path.rmdir()
        return None


def _own_cgroup() -> Path | None:
    mount = cgroup2_mount()
    if mount is None:
        return None
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("0::/"):
            return mount / line[4:]
    return None
