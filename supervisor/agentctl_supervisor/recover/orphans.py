"""What a dead warden leaves behind in the subreaper fallback, and who ends it.

Orphans of a run go to its warden; when that is killed, to the spawner; when both
are, to a supervisor that is a subreaper (`Supervisor.open`).  In a pid namespace
there are none: init's end is everybody's.
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
    """From now on, orphans of our descendants become our children."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0)


async def wait_swept(spawner: int, wardens: Collection[int]) -> None:
    """Return once the spawner has no descendants but *wardens* and theirs, or after 10 seconds.

    It sweeps what comes to it by itself; this only waits, for one process after the other.
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

    Only for a process that has no children besides.  Another process does it, since
    sweeping blocks; that one is ours, too, and not swept.  Not to be called twice at once.
    """
    # RuntimeError: trio found no thread to start it on.
    with trio.move_on_after(_WITHIN_S), contextlib.suppress(OSError, RuntimeError):
        # It cannot always be started; then the report names who is left.
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
    """Reap what dies, so that a tree which hops from parent to parent is not hidden in its dead.

    Only the main thread hears of the dead; elsewhere they are reaped at the end.
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
