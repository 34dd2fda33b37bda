"""The killing of a process tree that only parent links hold together.

First every process is stopped, until a pass finds no new one; then all are killed. A process with
a pending signal cannot fork (fork(2) restarts), so nothing escapes between the two phases. A fork
bomb that is killed one by one would only refill its process limit. The root of the tree is a
subreaper: a process that loses its parent becomes a child of the root and cannot leave the tree.

This is also a program, for a subreaper whose spawner and warden were both killed: ``python -m
agentctl_child.keepers.sweep ROOT_PID KEEP_PID...``. It ends all descendants of ROOT_PID except
itself and the named processes (with their descendants). It prints the survivors as JSON.
"""

import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final, Self

import msgspec

from agentctl_child.sandbox import pidfd
from agentctl_protocol.spawning import ProcessIdentity

#: How long killed processes may take to end; a bomb of 256 took up to 0.9 s.
PATIENCE_S: Final = 10.0
#: A tracer inside can suppress a SIGSTOP of its tracee; then the tracee is killed unstopped.
_MOST_STOP_PASSES: Final = 50
_MOST_COUNTED: Final = 1000
_WAIT_S: Final = 0.02


def children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process. Empty if the process is gone."""
    children: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                children += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return children


def living(pids: Iterable[int]) -> int:
    """Count the living processes among *pids*; counting stops at 1000."""
    found = 0
    for pid in pids:
        stat = pidfd.read_stat(pid)
        found += stat is not None and stat.alive
        if found >= _MOST_COUNTED:
            break
    return found


def descendants(root: int, keep: Collection[int] = ()) -> Iterator[int]:
    """Yield every descendant of ``root``, parents first, without ``keep`` and their descendants.

    Among siblings, the latest comes first. A process that forks and exits again and again is at
    the end of the kernel's list, behind its own dead predecessors, and would be gone in a moment.
    """
    seen = {root, *keep}
    level = [root]
    while level:
        below = []
        for parent in level:
            for child in reversed(children_of(parent)):
                if child not in seen:
                    seen.add(child)
                    below.append(child)
                    yield child
        level = below


class _Held:
    """The processes found so far, each with its pidfd."""

    def __init__(self) -> None:
        self.by_identity: dict[ProcessIdentity, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self.by_identity.values():
            os.close(descriptor)

    def find(self, root: int, keep: Collection[int], number: int) -> bool:
        """Send ``number`` to every new living descendant; return True if there was one."""
        tree = {root}
        found = False
        for pid in descendants(root, keep):
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            except OSError:  # no more descriptors: kill those that were found, and look again
                return False
            # Read after the pidfd was opened. If this pid now has its parent in the tree, it is
            # either the process of the pidfd, or a later process, and then the pidfd signals
            # nothing.
            stat = pidfd.read_stat(pid)
            if stat is None or not stat.alive or stat.parent not in tree:
                os.close(descriptor)
                continue
            tree.add(pid)
            identity = ProcessIdentity(pid=pid, start_time=stat.start_time)
            if identity in self.by_identity:
                os.close(descriptor)
                continue
            self.by_identity[identity] = descriptor
            pidfd.send(descriptor, number)
            found = True
        return found

    def kill(self) -> None:
        """Send SIGKILL to all; wait a moment for their end, and drop the dead ones."""
        for descriptor in self.by_identity.values():
            pidfd.send(descriptor, signal.SIGKILL)
        end = time.monotonic() + _WAIT_S
        for identity, descriptor in list(self.by_identity.items()):
            if pidfd.has_ended(descriptor, max(0.0, end - time.monotonic())):
                os.close(descriptor)
                del self.by_identity[identity]


def _look(root: int, keep: Collection[int]) -> dict[ProcessIdentity, bool]:
    """Every descendant, dead ones too, and whether it is alive."""
    seen = {}
    for pid in descendants(root, keep):
        if stat := pidfd.read_stat(pid):
            seen[ProcessIdentity(pid=pid, start_time=stat.start_time)] = stat.alive
    return seen


def signal_all(root: int, number: int) -> None:
    """Send a signal once to every descendant of ``root``, also to those born meanwhile."""
    with _Held() as held:
        for _ in range(_MOST_STOP_PASSES):
            if not held.find(root, (), number):
                return


def sweep(
    root: int,
    keep: Callable[[], Collection[int]] = tuple,
    *,
    reap: Callable[[], object] = lambda: None,
    is_empty: Callable[[], bool] | None = None,
    patience_s: float = PATIENCE_S,
) -> tuple[ProcessIdentity, ...]:
    """Kill every descendant of ``root`` except ``keep()``; return who is left.

    ``reap`` collects dead children of this process.  ``is_empty`` is a better proof of
    emptiness than looking, where the caller has one.
    """
    end = time.monotonic() + patience_s
    while True:
        try:
            with _Held() as held:
                for _ in range(_MOST_STOP_PASSES):
                    if not held.find(root, keep(), signal.SIGSTOP):
                        break
                held.kill()
        except OSError as error:
            # No file can be opened, so no process can be found. The processes that were killed so
            # far free theirs when they end.
            if error.errno not in (errno.EMFILE, errno.ENFILE) or time.monotonic() >= end:
                raise
            reap()
            signal.sigtimedwait([signal.SIGCHLD], _WAIT_S)
            continue
        reap()
        if is_empty is not None and is_empty():
            return ()
        # A list of children is not read in one instant. A process that forks and exits during the
        # read may be missed. But each such step leaves a dead process, or takes one away. If two
        # looks see the same dead processes and no living one, the tree is empty.
        first, second = _look(root, keep()), _look(root, keep())
        if is_empty is None and first == second and not any(first.values()):
            return ()
        if time.monotonic() >= end:
            living = tuple(identity for identity, alive in second.items() if alive)
            return living or tuple(first.keys() ^ second.keys())
        if first == second:
            # Dead already, or about to be. SIGCHLD tells of those that we must reap.
            signal.sigtimedwait([signal.SIGCHLD], _WAIT_S)


def main(arguments: list[str]) -> int:
    """Sweep; return 0 if no process is left, 1 if one is, 2 for a wrong command line."""
    if not arguments or not all(argument.isdecimal() for argument in arguments):
        sys.stderr.write("usage: python -m agentctl_child.keepers.sweep ROOT_PID KEEP_PID...\n")
        return 2
    root, *kept = map(int, arguments)
    # We are below the root ourselves, so we must keep ourselves.
    keep = {*kept, os.getpid()}
    survivors = sweep(root, lambda: keep)
    sys.stdout.write(msgspec.json.encode(survivors).decode() + "\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
