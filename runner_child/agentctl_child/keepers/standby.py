"""A place that was made before its run is known, as its warden holds it.

Making one takes most of the time of a start.  Init waits in it, confined to the last filter; what
is missing is the run: its program, environment, working directory and descriptors.
"""

import contextlib
import os
from dataclasses import astuple
from typing import Final

from agentctl_child.keepers.launch_request import BadLaunchError, begun, read_launch
from agentctl_child.keepers.namespace_tree import NamespaceTree
from agentctl_protocol.spawning import Launch


class Standby:
    """The place of ``launch`` with init in it; ``mounts`` has POLLPRI when the host's change.

    What is shown then may not be what a run should see, and a file system that was unmounted
    must not be kept busy by a run that nobody asked for.
    """

    def __init__(self, launch: Launch, tree: NamespaceTree, cgroup: int | None) -> None:
        self._launch: Final = launch
        self._tree: Final = tree
        self._cgroup: Final = cgroup
        # Its event counts from here on: proc_pid_mountinfo(5).
        self.mounts: Final = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)

    def __repr__(self) -> str:
        return f"<Standby {self._launch.run}>"

    def begin(self, received: list[int]) -> Launch:
        """Hand the run that came with *received* to init.  Raises BadLaunchError."""
        memfd, agents = begun(received)
        try:
            launch = read_launch(memfd)
            if launch.place != self._launch.place:
                raise BadLaunchError("it is for another place")
            self._tree.begin(memfd, astuple(agents))
        finally:
            os.close(memfd)
            agents.close()
        os.close(self.mounts)
        return launch

    def remove_cgroup(self) -> None:
        """Without a run, nobody else knows of it when the supervisor is dead."""
        if self._cgroup is not None:
            with contextlib.suppress(OSError):
                os.rmdir(os.readlink(f"/proc/self/fd/{self._cgroup}"))
