"""The log of one live run: appends records, folds them into a state, and syncs them to disk.

The supervisor that holds the run is the only writer of its log.  A client that had to act
while we did not answer (frozen or stuck) leaves an *intent*.  The intent becomes the ``stop``
record here, before any record that could contradict it is appended.
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
"""The longest time between two checks for an intent.

An intent is written only after half a second without an answer to a ping.  So a writer that
has looked within the last quarter of a second cannot have missed one while it was frozen."""

_SYNC_EVERY_S: Final = 0.05
_AT_ONCE: Final = 1 << 12
"""The most lists and maps in a report that is made without waiting."""

_encode = msgspec.msgpack.Encoder().encode

Acknowledge: TypeAlias = Callable[[int], None]


class RunLog:
    """Appends the records of a run, folds them, and syncs them in groups.

    ``on_full`` is called once, when the disk has no more room.  From then on the supervisor's
    records go into a reserve, and the child's are counted and dropped.  It is also called when
    appended records cannot be synced to the disk.  Output and events over the limit of the
    spec are counted and dropped as well.

    Raises:
        LogFullError: there is no room to start the log.
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
        """True if the last record is written."""
        return self._closed

    def report(self) -> Report:
        """Return the report that the records give so far.

        It is made without a pause, so values that would take long are left out.
        """
        return whole(self.fold.reporting(log_bytes=self._writer.size, most=_AT_ONCE))

    def reporting(self, *, brief: bool = False) -> Generator[None, None, Report]:
        """Make the complete report in short steps; see `Fold.reporting`."""
        return self.fold.reporting(log_bytes=self._writer.size, brief=brief)

    def brief_report(self) -> Report:
        """Return `Report.brief` of the report so far."""
        return whole(self.reporting(brief=True))

    def follow(self) -> LogFollower:
        """Return a reader of all records, from the first one on."""
        return LogFollower(self._directory.path, self._directory.id)

    def append(self, body: SupervisorRecord) -> None:
        """Append a record of the supervisor's that does not decide the outcome."""
        if time.monotonic_ns() - self._looked_ns > _INTENT_CHECK_NS:
            self._fold_intent()
        self._append(*fitted(body), By.SUPERVISOR)

    def decide(self, body: SupervisorRecord) -> bool:
        """Append a record that may decide the outcome, after any intent of another process.

        Return False if it is a stop, or the reason for one, and there is a stop already (perhaps
        from an intent).
        """
        self._fold_intent()
        if self._is_too_late(body):
            return False
        return self._append(*fitted(body), By.SUPERVISOR)

    def append_verdict(self, body: VerdictRecord) -> bool:
        """Append an answer of the gate; return False if it is a grant and there is a stop now."""
        if time.monotonic_ns() - self._looked_ns > _INTENT_CHECK_NS:
            self._fold_intent()
        if self._is_too_late(body):
            return False
        return self._append(*fitted(body), By.SUPERVISOR)

    def append_estimates(self, *, over: bool) -> None:
        """Append the estimated usage of model calls that were cut short.

        *over*: the run is over, so open calls count as cut short, too.
        """
        for cut in self.fold.cut_calls(over=over):
            self.append(estimate(cut, self.estimator))

    def append_from_child(self, message: ChildRecord, raw: bytes) -> None:
        """Append a message exactly as the child sent it."""
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
        """Append a piece of the run's stdout or stderr."""
        if not self._is_flooded:
            self._append(*fitted(body), By.SUPERVISOR)
        else:
            self.dropped_bytes += len(body.data)
        self.child_bytes += len(body.data)

    @property
    def _is_flooded(self) -> bool:
        """True if the run is over its output limit.

        The run may write more for seconds, until it has ended.
        """
        return self._limit is not None and self.child_bytes > self._limit

    def _fold_intent(self) -> None:
        self._looked_ns = time.monotonic_ns()
        # Check for the file first: that takes a tenth of the time of an attempt to open it.
        if self.fold.stop is not None or not os.access(self._intent_path, os.F_OK):
            return
        try:
            intent = self._directory.read_intent()
        except DamagedRunError:
            # Not written by agentctl: an agent of the same user may have put it there.
            return
        if intent is not None:
            stop = msgspec.structs.replace(intent, intent=True)
            self._append(stop, _encode(stop), By.SUPERVISOR)
            self.on_intent(stop)

    def observed(self) -> Observed | None:
        """Return what a client observed that stopped the run in our place, or None."""
        try:
            return self._directory.read_observed()
        except DamagedRunError:
            return None

    def _is_too_late(self, body: RecordBody) -> bool:
        """Return True if *body* must not follow the stop that is in the log."""
        if self.fold.stop is None:
            return False
        match body:
            case Stop() | ConditionsMet() | VerdictRecord(verdict="granted"):
                return True
        return False

    def _append(self, body: RecordBody, raw: bytes, by: By) -> bool:
        """Append a record.

        Return False if the log has ended, or if the disk became full and the stop for that must
        not be followed by *body*.
        """
        if self._closed:
            return False
        count = len(body.events) if isinstance(body, Events) else 1
        from_child = by is By.CHILD or isinstance(body, Output)
        if self._full and from_child:
            self.dropped_bytes += len(raw)
            return True
        if self._full and isinstance(body, WorkspaceRecord):
            # The reserve is for the essential records.
            body = WorkspaceRecord(without_names(body.workspace))
            raw = _encode(body)
        try:
            seq, time_ns = self._writer.append(raw, by, count)
        except LogFullError:
            if self._full:  # the reserve is used up, too: only the fold gets the record
                seq, time_ns = self._writer.next_seq, time.time_ns()
            else:
                self._full = True
                self._writer.use_reserve()
                self.on_full()
                return not self._is_too_late(body) and self._append(body, raw, by)
        if isinstance(body, Events):
            self._child_events += count  # only these are acknowledged, not the dropped ones
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
        """The event that is set at the next append, or when the log ends."""
        if self._appended is None:
            self._appended = trio.Event()
        return self._appended

    async def keep_durable(self, acknowledge: Acknowledge) -> None:
        """Sync appended records in groups, and tell *acknowledge* how many events are on disk.

        Runs until it is cancelled or the disk fails.  Records after a failure are not safe.
        """
        while True:
            await self._dirty.wait()
            self._dirty = trio.Event()
            events = self._child_events
            try:
                # The end of the run cancels this, and must not wait for the disk.
                await run_sync("records", self._writer.sync, abandon_on_cancel=True)
            except LogFullError:
                self.on_full()
                return
            if events:
                acknowledge(events)
            # Not to wait for an event: this limits us to twenty syncs a second.
            await trio.sleep(_SYNC_EVERY_S)

    def end(self) -> None:
        """End the log: nothing is appended after that."""
        self._closed = True
        self._wake_followers()

    async def close_durably(self) -> None:
        """Sync everything to the disk, then close the files."""
        with contextlib.suppress(LogFullError):  # the disk is full or gone
            await run_sync("records", self._writer.sync)
        self.close()

    def close(self) -> None:
        """Close the files."""
        self._writer.close()


def _nothing() -> None:
    """Do nothing: the default for ``on_full``."""
