"""The log of one live run: what is appended, what it means so far, and when it is on disk.

The supervisor that holds the run is its only writer.  Somebody else who had to
act while we did not answer (frozen, stuck) leaves an *intent*; it becomes the
``stop`` record here, before anything that could contradict it is appended.
"""

import contextlib
import os
import time
from collections.abc import Callable, Generator
from typing import Final, TypeAlias

import msgspec
import trio

from agentctl_protocol.messages import CallFinished, Events
from agentctl_protocol.records import (
    ChildRecord,
    ConditionsMet,
    Observed,
    Output,
    Record,
    RecordBody,
    Stop,
    SupervisorRecord,
    VerdictRecord,
    WorkspaceRecord,
)
from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import By
from agentctl_supervisor.errors import DamagedRunError, LogFullError
from agentctl_supervisor.event_loop.steps import whole
from agentctl_supervisor.event_loop.worker_threads import run_sync
from agentctl_supervisor.report.estimates import DEFAULT, Estimator, estimate
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.report.workspace_history import without_names
from agentctl_supervisor.store.event_log import LogWriter
from agentctl_supervisor.store.log_follower import LogFollower
from agentctl_supervisor.store.record_room import fitted
from agentctl_supervisor.store.run_directory import RunDirectory

_INTENT_CHECK_NS: Final = 250_000_000
"""An intent is only written after half a second without an answer to a ping, so a writer
that has looked within a quarter of one cannot have missed it while it was frozen."""

_SYNC_EVERY_S: Final = 0.05
_AT_ONCE: Final = 1 << 12
"""Lists and maps in a report that is made without waiting."""

_encode = msgspec.msgpack.Encoder().encode

Acknowledge: TypeAlias = Callable[[int], None]


class RunLog:
    """Appends the records of a run, folds them, and syncs them in groups.

    ``on_full`` is called once, when the disk has no more room: from then on a reserve
    takes what the supervisor writes, and what the child says is counted and dropped.
    It is called, too, when the disk does not take what was appended.  Output and events
    over the limit of the spec are counted and dropped as well.

    Raises:
        LogFullError: there is no room to begin.
    """

    def __init__(self, directory: RunDirectory, spec: RunSpec) -> None:
        self.fold: Final = Fold(directory.id, spec)
        self.child_bytes = 0
        self.dropped_bytes = 0
        self._limit = spec.output_bytes
        self._directory = directory
        self._writer = LogWriter(directory.path, directory.id)
        self.on_full: Callable[[], None] = _nothing
        self.on_intent: Callable[[Stop], None] = lambda _: None
        self.estimator: Estimator = DEFAULT
        self._full = False
        self._child_events = 0
        self._looked_ns = time.monotonic_ns()
        self._intent_path = directory.intent_path
        self._dirty = trio.Event()
        self._appended: trio.Event | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<RunLog {self._directory.id}: {self._writer.next_seq} records>"

    @property
    def closed(self) -> bool:
        """Whether the last record is written."""
        return self._closed

    def report(self) -> Report:
        """What the records mean so far.

        It is made at once, so values that would take long are left out.
        """
        return whole(self.fold.reporting(log_bytes=self._writer.size, most=_AT_ONCE))

    def reporting(self, *, brief: bool = False) -> Generator[None, None, Report]:
        """The whole of it, in short steps; see `Fold.reporting`."""
        return self.fold.reporting(log_bytes=self._writer.size, brief=brief)

    def brief_report(self) -> Report:
        """`Report.brief` of it."""
        return whole(self.reporting(brief=True))

    def follow(self) -> LogFollower:
        """A reader of all records, from the first one on."""
        return LogFollower(self._directory.path, self._directory.id)

    def append(self, body: SupervisorRecord) -> None:
        """Write down a fact of ours that decides nothing."""
        if time.monotonic_ns() - self._looked_ns > _INTENT_CHECK_NS:
            self._fold_intent()
        self._append(*fitted(body), By.SUPERVISOR)

    def decide(self, body: SupervisorRecord) -> bool:
        """Write down a fact that may decide the outcome, after any intent of somebody else.

        False: it was a stop, or the reason for one, and there is one already (an intent's,
        perhaps).
        """
        self._fold_intent()
        if self._is_too_late(body):
            return False
        return self._append(*fitted(body), By.SUPERVISOR)

    def append_verdict(self, body: VerdictRecord) -> bool:
        """Write down an answer of the gate; False: it is a grant, and a stop stands by now."""
        if time.monotonic_ns() - self._looked_ns > _INTENT_CHECK_NS:
            self._fold_intent()
        if self._is_too_late(body):
            return False
        return self._append(*fitted(body), By.SUPERVISOR)

    def append_estimates(self, *, over: bool) -> None:
        """Write down what model calls used that were cut short; *over*: the open ones, too."""
        for cut in self.fold.cut_calls(over=over):
            self.append(estimate(cut, self.estimator))

    def append_from_child(self, message: ChildRecord, raw: bytes) -> None:
        """Write down a message just as the child sent it."""
        if isinstance(message, Events | CallFinished):  # neither can contradict a stop
            if time.monotonic_ns() - self._looked_ns > _INTENT_CHECK_NS:
                self._fold_intent()
        else:
            self._fold_intent()
        if not (self._is_flooded and isinstance(message, Events)):
            self._append(message, raw, By.CHILD)
        else:
            self.dropped_bytes += len(raw)
        self.child_bytes += len(raw)

    def append_output(self, body: Output) -> None:
        """Write down what the run wrote to stdout or stderr."""
        if not self._is_flooded:
            self._append(*fitted(body), By.SUPERVISOR)
        else:
            self.dropped_bytes += len(body.data)
        self.child_bytes += len(body.data)

    @property
    def _is_flooded(self) -> bool:
        """Whether the run has had its output: its end may take seconds, in which it writes more."""
        return self._limit is not None and self.child_bytes > self._limit

    def _fold_intent(self) -> None:
        self._looked_ns = time.monotonic_ns()
        # Whether there is one first: it takes a tenth of the time that trying to open it does.
        if self.fold.stop is not None or not os.access(self._intent_path, os.F_OK):
            return
        try:
            intent = self._directory.read_intent()
        except DamagedRunError:
            # Not written by us: an agent of the same user may have put it there.
            return
        if intent is not None:
            stop = msgspec.structs.replace(intent, intent=True)
            self._append(stop, _encode(stop), By.SUPERVISOR)
            self.on_intent(stop)

    def observed(self) -> Observed | None:
        """What somebody saw who stopped the run in our place."""
        try:
            return self._directory.read_observed()
        except DamagedRunError:
            return None

    def _is_too_late(self, body: RecordBody) -> bool:
        """Whether *body* must not follow the stop that stands."""
        if self.fold.stop is None:
            return False
        match body:
            case Stop() | ConditionsMet() | VerdictRecord(verdict="granted"):
                return True
        return False

    def _append(self, body: RecordBody, raw: bytes, by: By) -> bool:
        """False: nothing is to be appended any more, or the full disk's stop came before it."""
        if self._closed:
            return False
        count = len(body.events) if isinstance(body, Events) else 1
        from_child = by is By.CHILD or isinstance(body, Output)
        if self._full and from_child:
            self.dropped_bytes += len(raw)
            return True
        if self._full and isinstance(body, WorkspaceRecord):
            # The reserve is for what must be said.
            body = WorkspaceRecord(without_names(body.workspace))
            raw = _encode(body)
        try:
            seq, time_ns = self._writer.append(raw, by, count)
        except LogFullError:
            if self._full:  # the reserve is used up, too: the fold still knows
                seq, time_ns = self._writer.next_seq, time.time_ns()
            else:
                self._full = True
                self._writer.use_reserve()
                self.on_full()
                return not self._is_too_late(body) and self._append(body, raw, by)
        if isinstance(body, Events):
            self._child_events += count  # these, and none that was dropped, are acknowledged
        self.fold.apply(Record(seq, time_ns, by, body))
        self._dirty.set()
        self._wake_followers()
        return True

    def _wake_followers(self) -> None:
        if self._appended is not None:
            self._appended.set()
            self._appended = None

    @property
    def appended(self) -> trio.Event:
        """Set at the next append, or when the log ends."""
        if self._appended is None:
            self._appended = trio.Event()
        return self._appended

    async def keep_durable(self, acknowledge: Acknowledge) -> None:
        """Sync what was appended, in groups; *acknowledge* learns how many events are safe.

        Runs until it is cancelled, or the disk fails: what comes then is safe no more.
        """
        while True:
            await self._dirty.wait()
            self._dirty = trio.Event()
            events = self._child_events
            try:
                # The end of a run, which cancels this, does not wait for the disk.
                await run_sync("records", self._writer.sync, abandon_on_cancel=True)
            except LogFullError:
                self.on_full()
                return
            if events:
                acknowledge(events)
            # Not to wait for anything: at most twenty syncs a second, whatever is written.
            await trio.sleep(_SYNC_EVERY_S)

    def end(self) -> None:
        """Nothing is appended any more."""
        self._closed = True
        self._wake_followers()

    async def close_durably(self) -> None:
        """Close the files once everything is on the disk."""
        with contextlib.suppress(LogFullError):  # the disk is full or gone
            await run_sync("records", self._writer.sync)
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._writer.close()


def _nothing() -> None:
    """Nobody is told."""
