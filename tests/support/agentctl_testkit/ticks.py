"""Waiting for the kernel's coarse clock, by which the beginning of a run is told."""

from agentctl_supervisor.workspace.clock import beginning


def after_a_tick() -> int:
    """A beginning, in ns, that all that was made before is older than.

    From Linux 6.13 on inodes may have fine stamps, and the coarse clock may lag behind those
    by a tick even when it has just moved on.  So it has to move twice.
    """
    now = beginning().coarse_ns
    for _ in range(2):
        before = now
        while (now := beginning().coarse_ns) == before:
            pass
    return now
