"""Stops a run whose supervisor is alive but does not answer, because it is frozen or stuck.

First the intent is written and synced.  So the decision is on disk before its effect, and the
supervisor finds the reason for the run's end when it continues.  Then the run's own keepers end
the run.  The log is not touched, because the supervisor is its only writer.  The supervisor is
not killed, because it may hold other runs.

The agent cannot be asked to end, because only the supervisor has the channel.  So the ladder
begins at SIGTERM.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, Self

import msgspec

from agentctl_protocol.control import PING_TIMEOUT_S, Step
from agentctl_protocol.os_names import to_native
from agentctl_protocol.records import (
    Answered,
    ContainedRecord,
    Created,
    End,
    Observed,
    RungRecord,
    Stop,
)
from agentctl_protocol.report import Actor, Processes, Report, Survivor
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.vocabulary import Containment, Reason, Result, Rung
from agentctl_supervisor.errors import DamagedRunError, StateDirectoryError, SupervisorStuckError
from agentctl_supervisor.filesystem.writable_roots import roots_of
from agentctl_supervisor.processes import process_tree
from agentctl_supervisor.processes.open_files import OpenFiles, open_for_writing
from agentctl_supervisor.recover.stop_seen_by_client import Seen, observation, told, with_intent
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.store import log_watch
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import RunDirectory
from agentctl_supervisor.text.users import uid_and_name

TERMINATE_SIGNAL: Final = signal.SIGUSR1
"""The signal that gives a warden the same order as `spawning.Terminate`."""
KILL_SIGNAL: Final = signal.SIGUSR2
"""The signal that gives a warden the same order as `spawning.Kill`."""

_EMPTY_WITHIN_S: Final = 10.0
_DYING_WITHIN_S: Final = 20.0
"""The additional seconds, as long as the number of processes that are left decreases."""
_OUT_OF_SIGHT: Final = (
    "its supervisor does not answer, and its processes are out of reach, in another pid"
    " namespace; the stop is recorded, and its supervisor obeys it as soon as it goes on"
)
_WARDEN_ALONE_S: Final = 1.0
"""The seconds that the warden may sweep before the run's members are also killed one by one."""


class Move(msgspec.Struct, frozen=True):
    """A rung of the ladder as a client takes it in place of the supervisor.

    ``warden`` is the signal that the warden gets.  If ``root`` or ``cgroup`` is true, the root
    process or the cgroup is killed directly, too, because the warden can be frozen as well.
    After that, the tree has ``wait_s`` seconds to end.
    """

    rung: Rung
    warden: signal.Signals
    wait_s: float
    root: bool = False
    cgroup: bool = False


def plan(contained: ContainedRecord, stop: Stop) -> list[Move]:
    """Return the moves, in order, that end the run of *contained* as *stop* requests."""
    terminate = Move(Rung.SIGTERM, TERMINATE_SIGNAL, stop.term_grace_s)
    kill = Move(
        Rung.SIGKILL,
        KILL_SIGNAL,
        _EMPTY_WITHIN_S,
        # Without a pid namespace the root's death does not kill the others.  They would be
        # reparented to the warden just while it enumerates them.
        root=contained.containment is Containment.PID_NAMESPACE,
        cgroup=bool(contained.cgroup),
    )
    return [kill] if stop.kill else [terminate, kill]


class OutsideStop(msgspec.Struct, frozen=True):
    """The outcome of a stop in place of the supervisor."""

    report: Report
    gone: bool


def stop_from_outside(
    directory: RunDirectory,
    *,
    kill: bool,
    term_grace_s: float | None,
    reason: str,
    on_step: Callable[[Step], None],
) -> OutsideStop:
    """End the run of *directory* in its supervisor's place; return when its end is proven.

    For a run in another pid namespace only the intent is written: its pids are not valid in
    ours, so no process can be killed.

    Raises:
        SupervisorStuckError: the supervisor froze before the run could begin (docs/adr/0017),
            so it is not known yet which processes to kill.
    """
    spec = directory.read_spec()
    wanted = Stop(
        result=Result.STOPPED,
        reason=Reason.USER,
        detail=reason,
        actor=Actor("uid", uid_and_name(os.getuid())),
        grace_s=0.0,
        term_grace_s=spec.term_grace_s if term_grace_s is None else term_grace_s,
        kill=kill,
        intent=True,
        at_ns=time.time_ns(),
    )
    stop = wanted
    if not directory.write_intent(wanted):
        # There is another client's intent already.  We join its stop, with our own graces.
        stop = directory.read_intent() or wanted
    contained = log_watch.wait_for(
        os.fspath(directory.path), lambda: _contained(directory), PING_TIMEOUT_S
    )
    fold = Fold(directory.id, spec)
    for record in LogReader(directory.path):
        fold.apply(record)
    if fold.created is not None and process_tree.is_out_of_sight(fold.created):
        known = with_intent(fold.report(), stop)
        return OutsideStop(msgspec.structs.replace(known, detail=_OUT_OF_SIGHT), gone=False)
    if contained is None:
        raise SupervisorStuckError(
            f"{directory.id} has not begun, and its supervisor, which does not answer, keeps it"
            " from ending",
            hint=_end_supervisor(directory),
        )
    workspace = fold.created.workspace if fold.created else ""
    with Grip(directory.id, contained, roots_of(workspace, spec)) as grip:
        decided: Seen = (time.time_ns(), stop)
        seen = grip.climb(plan(contained, wanted), on_step)
    report = told(fold, [decided, *seen])
    _leave(directory, observation(seen))
    return OutsideStop(report, report.processes.survivors == 0)


def _leave(directory: RunDirectory, observed: Observed) -> None:
    """Write *observed* for the supervisor; replace that of an earlier stop with survivors."""
    # If this fails, the supervisor's report has less detail.
    with contextlib.suppress(DamagedRunError, StateDirectoryError, OSError):
        before = directory.read_observed()
        if before is not None and before.processes.survivors:
            os.unlink(directory.path / "observed")
        directory.write_observed(observed)


class Grip:
    """The pidfds of a run's keepers, which can never refer to another process."""

    def __init__(self, run_id: str, contained: ContainedRecord, writable: Sequence[bytes]) -> None:
        self._run_id = run_id
        self._contained = contained
        self._in_namespace = contained.containment is Containment.PID_NAMESPACE
        self._writable = writable
        self._warden = process_tree.open_pidfd(contained.warden)
        self._root = process_tree.open_pidfd(contained.root)
        self._seen: set[ProcessIdentity] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pidfd in (self._warden, self._root):
            if pidfd is not None:
                os.close(pidfd)

    def climb(self, moves: Sequence[Move], on_step: Callable[[Step], None]) -> list[Seen]:
        """Make *moves* until the tree is empty; return what a supervisor would have recorded."""
        seen: list[Seen] = []
        killed = 0
        at_least = False
        for move in moves:
            if seen and not self._left():
                break
            found = process_tree.census(self._contained)
            members, alive = found.alive, len(found.alive)
            self._seen.update(members)
            at_least = at_least or not found.complete
            files = OpenFiles()
            if move.rung is Rung.SIGKILL:
                files = open_for_writing(members, self._writable)
            rung = RungRecord(
                step=move.rung,
                processes=alive,
                open_files=files.paths,
                open_unread=files.unread,
                at_least=not found.complete,
            )
            seen.append((time.time_ns(), rung))
            on_step(
                Step(
                    step=move.rung,
                    processes=alive,
                    left_s=move.wait_s,
                    at_least=not found.complete,
                )
            )
            answered = "yes" if self._make(move) else "no"
            seen.append((time.time_ns(), Answered(step=move.rung, how=answered)))
            on_step(Step(answered=answered))
            if move.rung is Rung.SIGKILL:
                killed = alive
        left = tuple(Survivor(who.pid, process_tree.command_line(who.pid)) for who in self._left())
        counts = Processes(len(self._seen), max(killed - len(left), 0), len(left), at_least)
        seen.append((time.time_ns(), End(processes=counts, survivors=left)))
        return seen

    def _make(self, move: Move) -> bool:
        """Execute *move*; return True if the tree was empty in time."""
        if self._warden is not None:
            process_tree.send_signal(self._warden, move.warden)
            # Only SIGKILL and SIGCONT take effect on a warden that was stopped by a signal.
            process_tree.send_signal(self._warden, signal.SIGCONT)
        if move.root and self._root is not None:
            process_tree.send_signal(self._root, signal.SIGKILL)
        if move.cgroup:
            _kill_cgroup(to_native(self._contained.cgroup))
        if move.rung is not Rung.SIGKILL:
            return process_tree.wait_dead(self._keepers(), move.wait_s) and not self._left()
        deadline = time.monotonic() + move.wait_s
        process_tree.wait_dead(self._keepers(), min(_WARDEN_ALONE_S, move.wait_s))
        longest = deadline + _DYING_WITHIN_S
        fewest = sys.maxsize
        while left := self._left():
            if len(left) < fewest:  # processes are dying, but the machine is busy
                fewest = len(left)
                deadline = min(longest, max(deadline, time.monotonic() + _EMPTY_WITHIN_S / 2))
            if (left_s := deadline - time.monotonic()) <= 0:
                break
            _kill_each([who for who in left if who != self._contained.warden], left_s)
            process_tree.wait_dead(self._proof(), min(_WARDEN_ALONE_S, left_s))
        return not left

    def _keepers(self) -> list[int]:
        """Return the pidfds of the processes that end with the run; the warden ends last."""
        return [fd for fd in (self._root, self._warden) if fd is not None]

    def _proof(self) -> list[int]:
        """Return the pidfd of the process whose end proves the end of the tree.

        That is init or, without a pid namespace, the warden, which sweeps before it ends.  There
        an empty list of visible processes proves nothing: a process that moves from parent to
        parent may be missed.
        """
        proof = self._root if self._in_namespace else self._warden
        return [] if proof is None else [proof]

    def _is_proven(self) -> bool:
        return process_tree.wait_dead(self._proof(), 0.0)

    def _left(self) -> list[ProcessIdentity]:
        """Return the processes that are left.

        If none is seen but the end of the tree is not proven, return the keeper whose end would
        prove it.
        """
        contained = self._contained
        left = self._look()
        if not left and not self._is_proven():
            return [process_tree.last_keeper(contained)]
        if not left and not self._in_namespace:
            # If the warden was killed, it has swept nothing.
            left = process_tree.marked(self._run_id, contained.warden.start_time)
        return left

    def _look(self) -> list[ProcessIdentity]:
        if self._in_namespace and self._is_proven():
            # Init dies last, so a process that is still visible is dying.
            return []
        alive = process_tree.members(self._contained)
        self._seen.update(alive)
        return alive


def _kill_each(members: Sequence[ProcessIdentity], timeout_s: float) -> None:
    """Send SIGKILL to each of *members*; wait until they are dead, or for *timeout_s* seconds."""
    pidfds = [fd for who in members if (fd := process_tree.open_pidfd(who)) is not None]
    try:
        for pidfd in pidfds:
            process_tree.send_signal(pidfd, signal.SIGKILL)
        process_tree.wait_dead(pidfds, timeout_s)
    finally:
        for pidfd in pidfds:
            os.close(pidfd)


def _kill_cgroup(path: str) -> None:
    try:
        with open(os.path.join(path, "cgroup.kill"), "w") as file:
            file.write("1")
    except OSError:
        # The cgroup went with its last member, or the kernel is older than 5.14.  The keepers
        # have got their signals in any case.
        pass


def _contained(directory: RunDirectory) -> ContainedRecord | None:
    for record in LogReader(directory.path):
        if isinstance(record.body, ContainedRecord):
            return record.body
    return None


def _end_supervisor(directory: RunDirectory) -> str:
    for record in LogReader(directory.path):
        if isinstance(record.body, Created):
            pid = record.body.supervisor.pid
            return (
                f"the stop is recorded; kill -CONT {pid} lets the supervisor go on,"
                f" kill -KILL {pid} ends all its runs"
            )
    return "the stop is recorded and holds as soon as its supervisor goes on"
