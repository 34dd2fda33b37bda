"""Makes one cgroup (v2) for each run and kills it as a whole.

``cgroup.kill`` (kernel 5.14) ends every process of a cgroup at once, even if they fork meanwhile.
``cgroup.events`` says when the cgroup is empty.  Both files also exist on a hierarchy without any
controller (seen on 6.18).  A cgroup is an addition to the containment, never the only one.  If none
can be made, the run starts without a cgroup, and its report says so.
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
        """Send SIGKILL to every process of the cgroup; has no effect before kernel 5.14."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_text("1")

    def populated(self) -> bool:
        """Return True if a process that is not a zombie is in the cgroup or below it."""
        try:
            return "populated 1" in (self.path / "cgroup.events").read_text()
        except OSError:
            return False

    def remove(self) -> None:
        """Close the descriptor and remove the cgroup; a populated one is left for recovery."""
        os.close(self.fd)
        # A root agent may have made cgroups below this one.  Remove them bottom-up: otherwise
        # rmdir fails with EBUSY.
        for directory, _, _ in os.walk(self.path, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)


def make_run_cgroup(run_id: str) -> RunCgroup | None:
    """Make a cgroup for *run_id* below our own cgroup; return None if that is not possible."""
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
