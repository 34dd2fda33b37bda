"""Killing a process tree that nothing holds together but its parent links.

Everything is stopped first, to a fixed point, and then killed: a process that has
a signal pending cannot fork (fork(2) restarts), so nothing escapes between the
two, and a bomb that is killed member by member would only refill its process limit.
The root of the tree is a subreaper, so that whoever loses its parent comes to
hang directly below it and cannot leave the tree.

Also a program, for a subreaper whose spawner and warden were both killed:
``python -m agentctl_child.keepers.sweep ROOT_PID KEEP_PID...`` ends all descendants of
ROOT_PID but those named (with theirs) and itself, and prints the survivors as JSON.
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

#: How long the dead may take to be dead; a bomb of 256 took up to 0.9 s.
PATIENCE_S: Final = 10.0
#: A tracer inside can take a SIGSTOP from its tracee; then it is killed unstopped.
_MOST_STOP_PASSES: Final = 50
_MOST_COUNTED: Final = 1000
_WAIT_S: Final = 0.02


def children_of(pid: int) -> list[int]:
    """The children of a process, by all its threads.  Empty if it is gone."""
    children: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                children += map(int, file.read().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return children


def living(pids: Iterable[int]) -> int:
    """How many of *pids* are alive; at the thousandth it stops counting."""
    found = 0
    for pid in pids:
        stat = pidfd.read_stat(pid)
        found += stat is not None and stat.alive
        if found >= _MOST_COUNTED:
            break
    return found


def descendants(root: int, keep: Collection[int] = ()) -> Iterator[int]:
    """Every descendant of ``root``, parents first, without ``keep`` and what is below them.

    Of brothers, the latest first: who hops from parent to parent is at the end of the
    list, behind the corpses of what it was before, and gone in a moment.
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
    """The processes found so far, each by a pidfd."""

    def __init__(self) -> None:
        self.by_identity: dict[ProcessIdentity, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self.by_identity.values():
            os.close(descriptor)

    def find(self, root: int, keep: Collection[int], number: int) -> bool:
        """Send ``number`` to every living descendant that is new; return whether there was one."""
        tree = {root}
        found = False
        for pid in descendants(root, keep):
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            except OSError:  # no more descriptors: kill what we have, and look again
                return False
            # Read after the pidfd was opened: what has its parent in the tree now is either
            # the process of the pidfd, or a later one, and then the pidfd signals nobody.
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
        """SIGKILL to all; wait a moment for those that take it, and forget the dead."""
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
            # No file can be opened, so nobody can be found: those that were take theirs with them.
            if error.errno not in (errno.EMFILE, errno.ENFILE) or time.monotonic() >= end:
                raise
            reap()
            signal.sigtimedwait([signal.SIGCHLD], _WAIT_S)
            continue
        reap()
        if is_empty is not None and is_empty():
            return ()
        # A list of children is not read in one instant, and one that hops while it is may be
        # missed.  But it leaves a corpse with every hop, or takes one away: where two looks
        # see the same dead and nobody alive, there is nobody.
        first, second = _look(root, keep()), _look(root, keep())
        if is_empty is None and first == second and not any(first.values()):
            return ()
        if time.monotonic() >= end:
            living = tuple(identity for identity, alive in second.items() if alive)
            return living or tuple(first.keys() ^ second.keys())
        if first == second:
            # Dead already, or about to be; what is ours to reap comes as SIGCHLD.
            signal.sigtimedwait([signal.SIGCHLD], _WAIT_S)


def main(arguments: list[str]) -> int:
    """Sweep; 0 if nobody is left, 1 if somebody is, 2 for a wrong command line."""
    if not arguments or not all(argument.isdecimal() for argument in arguments):
        sys.stderr.write("usage: python -m agentctl_child.keepers.sweep ROOT_PID KEEP_PID...\n")
        return 2
    root, *kept = map(int, arguments)
    # Not by our parent's hand alone: we are below the root ourselves.
    keep = {*kept, os.getpid()}
    survivors = sweep(root, lambda: keep)
    sys.stdout.write(msgspec.json.encode(survivors).decode() + "\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
