"""Finds processes by identity, and the processes that belong to a run, from /proc.

A pid alone never identifies a process here: the start time is checked too, and signals go through
a pidfd.  A process can choose its name, arguments and environment.  These are shown to people, but
decide nothing while its keepers are alive.
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
_GONE: Final = _DEAD | {""}
_MAX_COMMAND: Final = 4096
_SHOWN_COMMAND: Final = 200
_MAX_READ: Final = 1 << 18
CENSUS_S: Final = 0.05
"""The seconds that a signal may be delayed to count the processes that it is for."""
_MAX_LOOKS: Final = 16
LONGEST_POLL_S: Final = 86_400.0
"""The longest single poll(2), which takes an int of milliseconds (24 days).  To wait longer, poll
again."""


class _Stat(NamedTuple):
    """Fields 3, 4 and 22 of ``/proc/<pid>/stat`` (proc(5))."""

    state: str
    ppid: int
    start_time: int


@cache
def boot_id() -> str:
    """Return the kernel's id of this boot, or an empty string if /proc does not show it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def pid_namespace() -> int:
    """Return the inode of our pid namespace; 0 if /proc does not show it or is not ours."""
    try:
        # A /proc that was mounted in another pid namespace shows the pids of that namespace
        # (pid_namespaces(7)).
        if int(os.readlink("/proc/self")) != os.getpid():
            return 0
        return os.stat("/proc/self/ns/pid").st_ino
    except (OSError, ValueError):
        return 0


def is_out_of_sight(created: Created) -> bool:
    """Return True if the pids of the run of *created* belong to a pid namespace that is not ours.

    Then /proc cannot prove that the run is alive or dead, and its pids may be other processes here.
    After a reboot nothing is left of a run, in any namespace; the result is then False.
    """
    if created.pid_namespace == 0 or created.boot_id != boot_id():
        return False
    return created.pid_namespace != pid_namespace()


def identity_of(pid: int) -> ProcessIdentity | None:
    """Return the identity of the process that has *pid* now, zombies included."""
    stat = _stat(pid)
    return None if stat is None else ProcessIdentity(pid, stat.start_time)


def is_alive(identity: ProcessIdentity) -> bool:
    """Return True if exactly this process exists and is not a zombie."""
    return _state_of(identity) not in _GONE


def is_runnable(identity: ProcessIdentity) -> bool:
    """Return True if the main thread of exactly this process runs or waits only for a CPU."""
    return _state_of(identity) == "R"


def open_pidfd(identity: ProcessIdentity) -> int | None:
    """Return a pidfd of exactly this process, or None if it is gone or a zombie.

    The caller closes the pidfd.
    """
    if not is_alive(identity):
        return None
    try:
        pidfd = os.pidfd_open(identity.pid)
    except OSError as error:
        # ESRCH: the process is gone.  EINVAL (before Linux 6.15) and ENOENT (since): its number is
        # now that of a thread.
        if error.errno not in {errno.ESRCH, errno.EINVAL, errno.ENOENT}:
            raise
        return None
    # Check again: the number may have been reused before pidfd_open, and then the descriptor is of
    # another process.  After pidfd_open, a reuse of the number changes nothing.
    if is_alive(identity):
        return pidfd
    os.close(pidfd)
    return None


def send_signal(pidfd: int, number: int) -> bool:
    """Send a signal; False if the process is gone.

    Raises:
        PermissionError: we are not allowed to send it.
    """
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return False
    return True


def members(contained: ContainedRecord, *, with_init: bool = False) -> list[ProcessIdentity]:
    """Return the processes of a run that are alive now, in the order of their pids.

    With a pid namespace, these are all processes in it and in namespaces below it; in the
    fallback, the descendants of the warden.  If the run has a cgroup, all processes in it are
    added.  The keepers do not belong to the run: the warden is left out, and init too unless
    *with_init* is set.
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


def last_keeper(contained: ContainedRecord) -> ProcessIdentity:
    """Return the keeper above all of the run, whose end proves the end of the tree.

    That is init or, without a pid namespace, the warden, which sweeps before it ends.
    """
    in_namespace = contained.containment is Containment.PID_NAMESPACE
    return contained.root if in_namespace else contained.warden


class Census(NamedTuple):
    """The processes that were alive.  ``complete`` is False if there was no time for the rest."""

    alive: Sequence[ProcessIdentity]
    complete: bool


def census(contained: ContainedRecord, within_s: float = CENSUS_S) -> Census:
    """Return the processes of a run that are found within about *within_s* seconds.

    Their number has no limit.  Unlike `members`, it does not look at the machine's other
    processes.
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
    """Return the live descendants of *roots*, without *keep* and the descendants of *keep*."""
    return _alive(_with_descendants(roots, keep) - roots)


def ancestors(pid: int, most: int) -> list[int] | None:
    """Return the pids of the ancestors of *pid*, nearest first.

    Returns None if there are more than *most*, or if one of the processes is ending.  The list is
    read until two reads agree, because a process may be forked and orphaned meanwhile.
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
    """Return the pids of the children of *pid*, zombies included."""
    if _has_children_files():
        return _children(pid)
    return list(_children_by_parent()[pid])


def marked(run_id: str, not_before: int = 0) -> list[ProcessIdentity]:
    """Return the processes that claim to belong to *run_id*; use it only if no keeper is left.

    The claim is the environment variable that a run's programs get, or the title of a keeper or
    agent.  Because it is only a claim, processes older than the run (*not_before*, a start time)
    are left out.
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
    """Wait at most *timeout_s* seconds; return True if the processes of all *pidfds* are dead."""
    deadline = time.monotonic() + timeout_s
    left = set(pidfds)
    poll = select.poll()
    for pidfd in left:
        poll.register(pidfd, select.POLLIN)
    while left:
        left_s = min(max(deadline - time.monotonic(), 0.0), LONGEST_POLL_S)
        # A pidfd is readable after every thread has ended, also for a zombie (pidfd_open(2)).
        for pidfd, _ in poll.poll(left_s * 1000):
            poll.unregister(pidfd)
            left.discard(pidfd)
        if time.monotonic() >= deadline:
            break
    return not left


def command_line(pid: int) -> str:
    """Return the command line of *pid*, on one line that is safe on a terminal; empty if gone."""
    arguments = _read(f"/proc/{pid}/cmdline")[:_MAX_COMMAND]
    if not arguments and (name := _read(f"/proc/{pid}/comm").strip()):
        arguments = b"[%s]" % name
    text = arguments.rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "backslashreplace")
    shown = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return shown if len(shown) <= _SHOWN_COMMAND else shown[:_SHOWN_COMMAND] + "..."


# --- the processes of a run -------------------------------------------------


def _candidates(contained: ContainedRecord) -> Iterator[int]:
    """Yield the pids of a run's processes, from the fastest source first; some twice, some dead.

    Processes that joined the run's namespace by setns(2) are left out: only a scan of all of
    /proc finds them.
    """
    if contained.cgroup:
        yield from _in_cgroup(to_native(contained.cgroup))
    top = last_keeper(contained)
    if is_alive(top):
        yield from _descent({top.pid})


def _in_cgroup(path: str) -> Iterable[int]:
    for directory, _, _ in os.walk(path):
        try:
            # 0 stands for a process that is not visible in our pid namespace.
            pids = Path(directory, "cgroup.procs").read_text("ascii").split()
        except (OSError, ValueError):
            continue
        yield from (int(pid) for pid in pids if pid != "0")


def _in_namespace(contained: ContainedRecord) -> set[int]:
    """Return the processes with the namespace's inode, and all their descendants.

    The inode alone misses some processes: one that is not dumpable or has another uid hides its
    inode (ptrace(2) access), and one may have entered a namespace below.  Descent alone misses
    those that joined by setns(2): they do not descend from init.
    """
    inhabitants = _by_namespace().get(contained.namespace or 0, ())
    # Check again: the number may be that of another process now.
    found = {pid for pid in inhabitants if _namespace_of(pid) == contained.namespace}
    if is_alive(contained.root):
        found.add(contained.root.pid)
    return _with_descendants(found)


class _Scan(NamedTuple):
    """The pids of each pid namespace from a scan of all of /proc; valid until ``until``."""

    by_namespace: Mapping[int, Collection[int]]
    until: float


_last_scan: _Scan | None = None


def _by_namespace() -> Mapping[int, Collection[int]]:
    """Return the pids of all processes, grouped by pid namespace.

    The result of a scan is reused for as long as the scan took; it does not show a single instant
    anyway.  So a program that ends 1,000 runs of dead supervisors scans /proc a few times, not
    1,000 times.  A supervisor's own stop uses `census`, which does not scan.
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
    """Yield the pids of the descendants of *roots*, without *keep* and its descendants."""
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
        # Each thread has its own list: a child belongs to the thread that forked it.
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


def _state_of(identity: ProcessIdentity) -> str:
    """Return the state letter of exactly this process; empty if it does not exist."""
    stat = _stat(identity.pid)
    return stat.state if stat is not None and stat.start_time == identity.start_time else ""


def _stat(pid: int) -> _Stat | None:
    try:
        text = _read(f"/proc/{pid}/stat")
        # The name is in brackets and may hold any bytes, brackets and spaces too.
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
