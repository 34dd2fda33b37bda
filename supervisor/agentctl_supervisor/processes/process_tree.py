"""Processes by identity, and the processes that belong to a run, as /proc shows them.

A number alone never means a process here: it is checked with the start time, and
signals go through a pidfd.  What a process may choose about itself (name, arguments,
environment) is shown to people, and decides nothing while its keepers are alive.
"""

import contextlib
import errno
import os
import re
import select
import signal
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from agentctl_protocol.os_names import to_native
from agentctl_protocol.records import ContainedRecord, Created
from agentctl_protocol.spawning import RUN_ID_VARIABLE, ProcessIdentity
from agentctl_protocol.vocabulary import Containment

_DEAD: Final = frozenset("ZXx")
_MAX_COMMAND: Final = 4096
_SHOWN_COMMAND: Final = 200
_MAX_READ: Final = 1 << 18
CENSUS_S: Final = 0.05
"""How long a signal may wait until those are counted whom it is for."""
_MAX_LOOKS: Final = 16
LONGEST_POLL_S: Final = 86_400.0
"""poll(2) takes an int of milliseconds, which is 24 days; whoever waits longer looks again."""


class _Stat(NamedTuple):
    """Fields 3, 4 and 22 of ``/proc/<pid>/stat`` (proc(5))."""

    state: str
    ppid: int
    start_time: int


@cache
def boot_id() -> str:
    """The kernel's name for this boot; empty where /proc does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def pid_namespace() -> int:
    """The inode of our pid namespace; 0 where /proc does not say, or is that of another one."""
    try:
        # A /proc that was mounted in another namespace has its numbers (pid_namespaces(7)).
        if int(os.readlink("/proc/self")) != os.getpid():
            return 0
        return os.stat("/proc/self/ns/pid").st_ino
    except (OSError, ValueError):
        return 0


def is_out_of_sight(created: Created) -> bool:
    """Whether the pids of the run of *created* are those of a pid namespace that is not ours.

    Then /proc proves neither its life nor its death, and its pids may name others here.
    Nothing of a run is left after a restart, wherever it was.
    """
    if created.pid_namespace == 0 or created.boot_id != boot_id():
        return False
    return created.pid_namespace != pid_namespace()


def identity_of(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has the number *pid* now, zombies included."""
    stat = _stat(pid)
    return None if stat is None else ProcessIdentity(pid, stat.start_time)


def is_alive(identity: ProcessIdentity) -> bool:
    """Whether this very process exists and is no zombie."""
    stat = _stat(identity.pid)
    return stat is not None and stat.start_time == identity.start_time and stat.state not in _DEAD


def is_runnable(identity: ProcessIdentity) -> bool:
    """Whether the main thread of this very process runs, or waits for nothing but a CPU."""
    stat = _stat(identity.pid)
    return stat is not None and stat.start_time == identity.start_time and stat.state == "R"


def open_pidfd(identity: ProcessIdentity) -> int | None:
    """A pidfd of this very process, or None if it is gone or a zombie.  The caller closes it."""
    if not is_alive(identity):
        return None
    try:
        pidfd = os.pidfd_open(identity.pid)
    except OSError as error:
        # Gone; with the others, its number is a thread's by now (before and since Linux 6.15).
        if error.errno not in {errno.ESRCH, errno.EINVAL, errno.ENOENT}:
            raise
        return None
    # Now the number cannot come to mean another one unseen: if it does not mean this
    # process by now, the descriptor is not of it either.
    if is_alive(identity):
        return pidfd
    os.close(pidfd)
    return None


def send_signal(pidfd: int, number: int) -> bool:
    """Send a signal; False if the process is gone.

    Raises:
        PermissionError: we may not.
    """
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    return True


def members(contained: ContainedRecord, *, with_init: bool = False) -> list[ProcessIdentity]:
    """The processes of a run that are alive now, in the order of their numbers.

    In a pid namespace that is everything in it and in namespaces below it; in the fallback
    the descendants of the warden; where the run has a cgroup, everything in that too.  Its
    keepers are not of the run: neither the warden nor, unless *with_init*, init.
    """
    found = set(_in_cgroup(to_native(contained.cgroup))) if contained.cgroup else set()
    if contained.containment is Containment.PID_NAMESPACE:
        found |= _in_namespace(contained)
    elif is_alive(contained.warden):
        found |= _with_descendants({contained.warden.pid})
    found.discard(contained.warden.pid)
    if contained.containment is Containment.PID_NAMESPACE and not with_init:
        found.discard(contained.root.pid)
    return _alive(found)


class Census(NamedTuple):
    """Processes that were alive; not ``complete``: there was no time to look for more."""

    alive: Sequence[ProcessIdentity]
    complete: bool


def census(contained: ContainedRecord, within_s: float = CENSUS_S) -> Census:
    """Whoever of a run is found within about *within_s* seconds, however many there are.

    Unlike `members` it does not look at the machine's other processes.
    """
    until = time.monotonic() + within_s
    looked_at = {contained.warden.pid}
    if contained.containment is Containment.PID_NAMESPACE:
        looked_at.add(contained.root.pid)
    alive: list[ProcessIdentity] = []
    for pid in _candidates(contained):
        if time.monotonic() >= until:
            return Census(alive, complete=False)
        if pid not in looked_at:
            looked_at.add(pid)
            alive += _alive([pid])
    return Census(sorted(alive, key=lambda who: who.pid), complete=True)


def descendants(roots: set[int], *, keep: Collection[int] = ()) -> list[ProcessIdentity]:
    """The living processes below *roots*, without *keep* and what is below those."""
    return _alive(_with_descendants(roots, keep) - roots)


def ancestors(pid: int, most: int) -> list[int] | None:
    """The numbers of the parents of *pid*, nearest first; None: more than *most*, or it is dying.

    Of a process that is forked and orphaned meanwhile the list is looked at again.
    """
    before: list[ProcessIdentity] | None = None
    for _ in range(_MAX_LOOKS):
        now = _lineage(pid, most)
        if now is None:
            return None
        if now == before:
            return [who.pid for who in now]
        before = now
    return None


def children_of(pid: int) -> list[int]:
    """The numbers of the children of *pid*, zombies included."""
    if _has_children_files():
        return _children(pid)
    return list(_children_by_parent()[pid])


def marked(run_id: str, not_before: int = 0) -> list[ProcessIdentity]:
    """Processes that say themselves that they belong to *run_id*; for when no keeper is left.

    By the environment that a run's programs get, or by the title of a keeper or agent.  A
    claim: so nothing that is older than the run (*not_before*, a start time) is believed.
    """
    variable = f"{RUN_ID_VARIABLE}={run_id}".encode()
    title = re.compile(rb"agentctl (?:warden|init|agent) %s(?![a-z0-9])" % run_id.encode())
    found = (
        pid
        for pid in _all_pids()
        if title.match(_read(f"/proc/{pid}/cmdline"))
        or variable in _read(f"/proc/{pid}/environ").split(b"\0")
    )
    return [who for who in _alive(found) if who.start_time >= not_before]


def wait_dead(pidfds: Iterable[int], timeout_s: float) -> bool:
    """Whether all of *pidfds* are dead, or are within *timeout_s* seconds."""
    deadline = time.monotonic() + timeout_s
    left = set(pidfds)
    poll = select.poll()
    for pidfd in left:
        poll.register(pidfd, select.POLLIN)
    while left:
        left_s = min(max(deadline - time.monotonic(), 0.0), LONGEST_POLL_S)
        # Readable once every thread has ended, zombies included (pidfd_open(2)).
        for pidfd, _ in poll.poll(left_s * 1000):
            poll.unregister(pidfd)
            left.discard(pidfd)
        if time.monotonic() >= deadline:
            break
    return not left


def command_line(pid: int) -> str:
    """What the process calls itself, on one line fit for a terminal; empty if it is gone."""
    arguments = _read(f"/proc/{pid}/cmdline")[:_MAX_COMMAND]
    if not arguments and (name := _read(f"/proc/{pid}/comm").strip()):
        arguments = b"[%s]" % name
    text = arguments.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return shown if len(shown) <= _SHOWN_COMMAND else shown[:_SHOWN_COMMAND] + "..."


# --- who belongs to a run --------------------------------------------------


def _candidates(contained: ContainedRecord) -> Iterator[int]:
    """The numbers of a run's processes, the quickest way first; some twice, some dead.

    Who joined its namespace by setns(2) is left out: only all of /proc tells of them.
    """
    if contained.cgroup:
        yield from _in_cgroup(to_native(contained.cgroup))
    in_namespace = contained.containment is Containment.PID_NAMESPACE
    root = contained.root if in_namespace else contained.warden
    if is_alive(root):
        yield from _descent({root.pid})


def _in_cgroup(path: str) -> Iterable[int]:
    for directory, _, _ in os.walk(path):
        try:
            # 0 is a process that our pid namespace does not know.
            pids = Path(directory, "cgroup.procs").read_text("ascii").split()
        except (OSError, ValueError):
            continue
        yield from (int(pid) for pid in pids if pid != "0")


def _in_namespace(contained: ContainedRecord) -> set[int]:
    """Those of the namespace's inode, and all that descends from them.

    Descent finds what a look at the inode does not: a process that is not dumpable or has
    another uid hides it (ptrace(2) access), and one may have gone into a namespace below.
    The inode finds what does not descend from init: whoever joined by setns(2).
    """
    inhabitants = _by_namespace().get(contained.namespace or 0, ())
    # Looked at again: the number may mean another process by now.
    found = {pid for pid in inhabitants if _namespace_of(pid) == contained.namespace}
    if is_alive(contained.root):
        found.add(contained.root.pid)
    return _with_descendants(found)


class _Scan(NamedTuple):
    """Who was in which pid namespace when all of /proc was read; to be used until then."""

    by_namespace: Mapping[int, Collection[int]]
    until: float


_last_scan: _Scan | None = None


def _by_namespace() -> Mapping[int, Collection[int]]:
    """The numbers of all processes, by their pid namespace.

    A scan serves again for as long as it took.  It is not of one instant anyway, and so
    a supervisor that stops 1,000 runs at once reads /proc a few times, and not 1,000.
    """
    global _last_scan
    began = time.monotonic()
    if _last_scan is not None and began < _last_scan.until:
        return _last_scan.by_namespace
    found: defaultdict[int, list[int]] = defaultdict(list)
    for pid in _all_pids():
        if (inode := _namespace_of(pid)) is not None:
            found[inode].append(pid)
    ended = time.monotonic()
    _last_scan = _Scan(found, ended + (ended - began))
    return found


def _namespace_of(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None


def _with_descendants(roots: set[int], keep: Collection[int] = ()) -> set[int]:
    return roots.union(_descent(roots, keep))


def _descent(roots: set[int], keep: Collection[int] = ()) -> Iterator[int]:
    """The numbers below *roots*, without *keep* and what is below those."""
    children = _children if _has_children_files() else _children_by_parent().__getitem__
    found, left = set(roots), list(roots)
    while left:
        for child in children(left.pop()):
            if child not in found and child not in keep:
                found.add(child)
                left.append(child)
                yield child


@cache
def _has_children_files() -> bool:
    # Since 3.5 with CONFIG_CHECKPOINT_RESTORE, since 4.2 with CONFIG_PROC_CHILDREN.
    return os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        # The list is kept for each thread: a child belongs to the one that forked it.
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{pid}/task/{thread}/children").read_text("ascii")
                found.extend(map(int, text.split()))
    except OSError:
        pass  # it is gone
    return found


def _children_by_parent() -> Mapping[int, list[int]]:
    children: defaultdict[int, list[int]] = defaultdict(list)
    for pid in _all_pids():
        stat = _stat(pid)
        if stat is not None:
            children[stat.ppid].append(pid)
    return children


def _lineage(pid: int, most: int) -> list[ProcessIdentity] | None:
    stat = _stat(pid)
    found: list[ProcessIdentity] = []
    while stat is not None and stat.ppid != 0:
        if len(found) == most:
            return None
        pid = stat.ppid
        stat = _stat(pid)
        if stat is not None:
            found.append(ProcessIdentity(pid, stat.start_time))
    return None if stat is None else found


def _alive(pids: Iterable[int]) -> list[ProcessIdentity]:
    found = []
    for pid in sorted(pids):
        stat = _stat(pid)
        if stat is not None and stat.state not in _DEAD:
            found.append(ProcessIdentity(pid, stat.start_time))
    return found


# --- /proc -----------------------------------------------------------------


def _all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []


def _stat(pid: int) -> _Stat | None:
    try:
        text = _read(f"/proc/{pid}/stat")
        # The name, in brackets, may hold anything, brackets and spaces too.
        fields = text[text.rindex(b")") + 2 :].split()
        return _Stat(fields[0].decode(), int(fields[1]), int(fields[19]))
    except (ValueError, IndexError):
        return None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_MAX_READ)
    except OSError:
        return b""
