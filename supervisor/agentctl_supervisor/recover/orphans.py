"""Ends the orphans that a dead warden leaves behind in the subreaper fallback.

The warden of a run adopts its orphans.  If the warden is killed, the spawner adopts them.  If
both are killed, a supervisor that is a subreaper (`Supervisor.open`) adopts them.  A pid
namespace leaves no orphans: when its init ends, all its processes end.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Collection
from typing import Final

import trio

from agentctl_supervisor.event_loop import readiness
from agentctl_supervisor.processes import isolated_python
from agentctl_supervisor.processes.process_tree import children_of, descendants, open_pidfd

_PR_SET_CHILD_SUBREAPER: Final = 36  # prctl(2), kernel 3.4
_WITHIN_S: Final = 10.0


def become_subreaper() -> None:
    """Become the parent of all future orphans among our descendants."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


async def wait_swept(spawner: int, wardens: Collection[int]) -> None:
    """Wait until the spawner's only descendants are *wardens* and theirs, at most 10 seconds.

    The spawner kills the orphans that it adopts by itself.  This function only waits, for one
    process after the other.
    """
    with trio.move_on_after(_WITHIN_S):
        while left := descendants({spawner}, keep=wardens):
            for identity in left:
                pidfd = open_pidfd(identity)
                if pidfd is None:
                    continue
                try:
                    await readiness.wait_readable(pidfd)
                finally:
                    os.close(pidfd)
            await trio.lowlevel.checkpoint()


async def sweep_own(keep: Collection[int]) -> None:
    """Kill and reap all our descendants but *keep* and theirs.

    Call this only in a process that has no other children, and never twice at the same time.
    Sweeping blocks, so another process does it; that process is our child too and is not swept.
    """
    # RuntimeError: trio found no thread to start it on.
    with trio.move_on_after(_WITHIN_S), contextlib.suppress(OSError, RuntimeError):
        # If the sweep cannot be started, the report names the processes that are left.
        sweep = await trio.lowlevel.open_process(
            isolated_python.command(
                "agentctl_child.keepers.sweep", *map(str, (os.getpid(), *keep))
            ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_reap_orphans, {sweep.pid, *keep})
            await sweep.wait()
            nursery.cancel_scope.cancel()
    _reap(keep)


async def _reap_orphans(keep: Collection[int]) -> None:
    """Reap dead children, so that zombies do not hide a tree that keeps changing its parents.

    Only the main thread can receive SIGCHLD; in other threads they are reaped at the end.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    with trio.open_signal_receiver(signal.SIGCHLD) as deaths:
        async for _ in deaths:
            _reap(keep)


def _reap(keep: Collection[int]) -> None:
    for pid in children_of(os.getpid()):
        if pid not in keep:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
