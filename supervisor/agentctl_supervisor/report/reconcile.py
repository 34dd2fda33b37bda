"""Computes the report of a run from its log: a fold over the records, one at a time.

The live supervisor and every later reader of the log use the same fold.  It reads no clock
and no file, so it can be replayed at any time.  A record that was applied before changes
nothing.  The memory of the fold does not grow with the log.
"""

from collections.abc import Callable, Generator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from agentctl_protocol.messages import (
    Artifact,
    Ask,
    CallFinished,
    Checkpoint,
    ErrorMessage,
    Events,
    Message,
    ResultMessage,
    Text,
    Usage,
)
from agentctl_protocol.records import (
    Answered,
    ConditionsMet,
    ContainedRecord,
    Created,
    End,
    Estimate,
    Exit,
    Illegal,
    Lost,
    Output,
    Record,
    RefusedRecord,
    RungRecord,
    Started,
    Stop,
    VerdictRecord,
    Waiting,
    WorkspaceRecord,
)
from agentctl_protocol.report import (
    FiredCondition,
    LadderStep,
    LogSummary,
    Processes,
    Report,
    WaitingCall,
)
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.values import MAX_CONTAINERS, NIL
from agentctl_protocol.vocabulary import Network, Result, Sandbox, State
from agentctl_supervisor.event_loop.steps import whole
from agentctl_supervisor.report.call_history import CallHistory, CutCall, Opener
from agentctl_supervisor.report.limits_in_force import limits_of
from agentctl_supervisor.report.run_outcome import Decisive, Facts, Outcome, outcome, settles
from agentctl_supervisor.report.text_tail import TextTail
from agentctl_supervisor.report.usage import UsageTotals
from agentctl_supervisor.report.wall_time import wall_time
from agentctl_supervisor.report.workspace_history import WorkspaceHistory

MAX_ARTIFACTS: Final = 1000
MAX_PATH: Final = 4096
MAX_RUNGS: Final = 32
MAX_ERROR: Final = 1 << 16
MAX_REPORT_CONTAINERS: Final = 1 << 17
"""Arrays and maps in all arguments and results of one report; other values are in the log only."""
MAX_WAITING_ARGS: Final = 1 << 14
"""Most bytes of a waiting call's arguments that are shown; longer ones are in the log only."""


class Fold:
    """The state of one run, computed from its records so far.

    The public attributes are the records that a caller needs in order to act on the run.
    """

    def __init__(self, run_id: str, spec: RunSpec, created_at: datetime | None = None) -> None:
        self.run_id: Final = run_id
        self.spec: Final = spec
        self.created: Created | None = None
        self.contained: ContainedRecord | None = None
        self.exit: Exit | None = None
        self.end: End | None = None
        self.lost: Lost | None = None
        self.refused: RefusedRecord | None = None
        self.stop: Stop | None = None
        #: The first record that settled the outcome; see `run_outcome.settles`.
        self.decided: Decisive | None = None
        self.events = 0
        self._created_at = created_at
        self._last_seq = 0
        #: Wall time of the last record, in nanoseconds.
        self.last_ns = 0
        self._first_ns: int | None = None
        self._started: Started | None = None
        self._started_ns: int | None = None
        self._stop_ns: int | None = None
        self._over_ns: int | None = None
        self._illegal: Illegal | None = None
        self._result: ResultMessage | None = None
        self._error: ErrorMessage | None = None
        self._ladder: list[LadderStep] = []
        self._seen = 0
        self.is_all_seen = True
        self._output_bytes = 0
        self._text = TextTail()
        self._checkpoint: Checkpoint | None = None
        self._artifacts: dict[str, None] = {}
        self._calls = CallHistory()
        self._usage = UsageTotals()
        self._conditions: tuple[FiredCondition, ...] = ()
        self._workspace = WorkspaceHistory()
        self._waiting: dict[str, Waiting] = {}
        self._asked: Ask | None = None
        self._waiting_args: dict[str, msgspec.Raw | None] = {}
        self._on_event: Final[dict[type, Callable[[Any], None]]] = {
            Message: lambda _: self._text.clear(),
            Usage: self._on_usage,
            Checkpoint: self._on_checkpoint,
            Artifact: self._on_artifact,
        }
        self._on_record: Final[dict[type, Callable[[Any, int], None]]] = {
            Created: self._on_created,
            ContainedRecord: self._on_contained,
            Started: self._on_started,
            Output: self._on_output,
            Events: self._on_events,
            Ask: self._on_ask,
            Waiting: self._on_waiting,
            VerdictRecord: self._on_verdict,
            ConditionsMet: self._on_conditions_met,
            Estimate: self._on_estimate,
            CallFinished: self._on_call_finished,
            ResultMessage: self._on_result,
            ErrorMessage: self._on_error,
            Stop: self._on_stop,
            RungRecord: self._on_rung,
            Answered: self._on_answered,
            Exit: self._on_exit,
            Illegal: self._on_illegal,
            RefusedRecord: self._on_refused,
            Lost: self._on_lost,
            WorkspaceRecord: lambda body, _: self._workspace.on_workspace(body),
            End: self._on_end,
        }

    def __repr__(self) -> str:
        return f"<Fold {self.run_id}: {self.state}, record {self._last_seq}>"

    @property
    def started(self) -> bool:
        """True if the agent's first instruction may have run."""
        return self._started is not None

    @property
    def ended(self) -> bool:
        """True if the log says that the tree is gone, or which processes survived."""
        return self.end is not None

    @property
    def complete(self) -> bool:
        """True if the agent finished its work before anybody stopped it (P5)."""
        return self.decided is not None and (
            self.decided is self._result or self.decided is self._error or self.decided is self.exit
        )

    @property
    def open_calls(self) -> tuple[str, ...]:
        """The ids of the granted calls that have not finished."""
        return self._calls.open

    def cut_calls(self, *, over: bool) -> list[CutCall]:
        """Return the model calls cut short that have no estimate; *over*: also the open ones."""
        return self._calls.cut_calls(over=over)

    @property
    def tokens(self) -> int:
        """The tokens used so far, as far as the agent reported them or they were estimated."""
        return self._usage.tokens

    @property
    def open_at_kill(self) -> tuple[str, ...]:
        """The workspace files that were open for writing just before SIGKILL."""
        return self._workspace.open_at_kill

    @property
    def processes_seen(self) -> int:
        """The highest number of processes that were alive just before a rung."""
        return self._seen

    @property
    def state(self) -> State:
        """The state of the run in its life cycle."""
        if self.end is not None or self.refused is not None or self.lost is not None:
            return State.FINISHED
        if self.stop is not None:
            return State.STOPPING
        if self._waiting:
            return State.WAITING
        return State.RUNNING if self._started is not None else State.STARTING

    def apply(self, record: Record) -> None:
        """Apply *record*; ignore it if it was applied before or has an unknown type."""
        if record.seq <= self._last_seq:
            return
        self._last_seq = record.seq
        self.last_ns = record.time_ns
        if self._first_ns is None:
            self._first_ns = record.time_ns
        on_record = self._on_record.get(type(record.body))
        if on_record is not None:
            on_record(record.body, record.time_ns)

    def report(
        self, *, log_bytes: int = 0, torn_bytes: int = 0, damaged: Sequence[str] = ()
    ) -> Report:
        """Return the report so far; the arguments are facts of the log's writer or reader."""
        return whole(self.reporting(log_bytes=log_bytes, torn_bytes=torn_bytes, damaged=damaged))

    def reporting(
        self,
        *,
        log_bytes: int = 0,
        torn_bytes: int = 0,
        damaged: Sequence[str] = (),
        brief: bool = False,
        most: int = MAX_REPORT_CONTAINERS,
    ) -> Generator[None, None, Report]:
        """Make the `report` in short steps: a child can send values that take long to decode.

        Records may be applied between the steps; the report still shows the state at the first
        step.  *brief*: see `Report.brief`.  *most*: see `MAX_REPORT_CONTAINERS`; a lower limit
        also applies to the value and the checkpoint.
        """
        over = self.state is State.FINISHED
        begun = self._without_values(log_bytes, torn_bytes, over=over, brief=brief)
        if brief:
            return begun
        result, checkpoint = self._result, self._checkpoint
        waiting_args = [self._waiting_args[call.id] for call in begun.waiting]
        all_calls = Opener(most)
        each = all_calls if most < MAX_REPORT_CONTAINERS else Opener(2 * MAX_CONTAINERS)
        all_calls.notes = each.notes
        each.notes += damaged
        calls = yield from self._calls.calls(all_calls, interrupted=over)
        waiting = []
        for call, raw in zip(begun.waiting, waiting_args, strict=True):
            args = yield from all_calls.open(raw, f"arguments of call {call.id}")
            waiting.append(msgspec.structs.replace(call, args=args))
        return msgspec.structs.replace(
            begun,
            value=(yield from each.open(result.value if result else NIL, "value")),
            checkpoint=(
                yield from each.open(checkpoint.state if checkpoint else NIL, "checkpoint")
            ),
            waiting=tuple(waiting),
            calls=calls,
            log=msgspec.structs.replace(begun.log, damaged=tuple(each.notes)),
        )

    def _without_values(
        self, log_bytes: int, torn_bytes: int, *, over: bool, brief: bool
    ) -> Report:
        """Return the report without the agent's values; *brief*: and without slow parts."""
        decided = self._outcome() if over else None
        end = self.end or End(processes=Processes(seen=self._seen, at_least=not self.is_all_seen))
        exit_ = self.exit
        return Report(
            id=self.run_id,
            name=self.spec.name,
            tags=self.spec.tags,
            command=self.spec.command,
            resumes=self.spec.resumes,
            state=self.state,
            result=decided.result if decided else None,
            reason=decided.reason if decided else None,
            detail=decided.detail if decided else "",
            actor=decided.actor if decided else None,
            conditions=self._conditions,
            error=_error_text(self._error) if self._error and not brief else "",
            exit_code=exit_.code if exit_ else None,
            signal=exit_.signal if exit_ else None,
            created_at=self._began_at(),
            started_at=wall_time(self._started_ns),
            ended_at=wall_time(self._over_ns),
            duration_s=self._duration_s(decided),
            ladder=tuple(self._ladder),
            processes=end.processes,
            survivor_list=end.survivors,
            waiting=tuple(
                WaitingCall(call.call, call.kind, call.name, call.rule, number=call.number)
                for call in (() if over else self._waiting.values())
            ),
            calls_left_out=self._calls.left_out,
            usage={} if brief else self._usage.totals(self._calls.open_model_calls if over else ()),
            partial_text="" if brief else str(self._text),
            artifacts=() if brief else tuple(self._artifacts),
            sandbox=self.spec.sandbox or Sandbox.BASIC,
            network=self.spec.net or Network.HOST,
            layers=self._started.layers if self._started else (),
            workspace=self._workspace.workspace(over=over, started=self.started),
            unseen_variables=self.created.unseen_variables if self.created else (),
            origins=self.spec.origins,
            limits=limits_of(self.spec),
            output_bytes=self._output_bytes,
            dropped_bytes=end.dropped_bytes,
            cpu_s=exit_.cpu_s if exit_ else None,
            log=LogSummary(
                events=self.events,
                bytes=log_bytes,
                torn_bytes=torn_bytes + end.torn_bytes,
            ),
        )

    def _began_at(self) -> datetime:
        # The time in the log comes first, so that every reader of the log reports the same.
        if self._first_ns is None and self._created_at is not None:
            return self._created_at
        return wall_time(self._first_ns or 0)

    def _outcome(self) -> Outcome | None:
        stop_after_s = None
        if self._stop_ns is not None and self._started_ns is not None:
            stop_after_s = max(0, self._stop_ns - self._started_ns) / 1e9
        return outcome(
            Facts(
                decided=self.decided,
                exit=self.exit,
                illegal=self._illegal,
                stop_after_s=stop_after_s,
                ladder=self._ladder,
                survivors=self.end.processes.survivors if self.end else 0,
                ended=self.ended,
                never_began=self.refused is not None,
                is_callable=self.spec.target is not None,
            )
        )

    def _duration_s(self, decided: Outcome | None) -> float | None:
        if self._started_ns is None or self._over_ns is None:
            return None
        # If the keepers of a lost run were killed too, only the last record's time is known.
        if decided is not None and decided.result is Result.LOST and self.exit is None:
            return None
        return max(0, self._over_ns - self._started_ns) / 1e9

    # --- one method for each kind of record ---------------------------------

    def _settle(self, body: Decisive) -> None:
        if self.decided is None and settles(body, is_callable=self.spec.target is not None):
            self.decided = body

    def _on_created(self, body: Created, _: int) -> None:
        if self.created is None:
            self.created = body
            self._workspace.on_created(body)

    def _on_contained(self, body: ContainedRecord, _: int) -> None:
        self.contained = self.contained or body

    def _on_started(self, body: Started, time_ns: int) -> None:
        if self._started is None:
            self._started, self._started_ns = body, time_ns

    def _on_output(self, body: Output, _: int) -> None:
        self._output_bytes += len(body.data)

    def _on_events(self, body: Events, _: int) -> None:
        self.events += len(body.events)
        add_text, on_event = self._text.add, self._on_event
        stream = self._calls.add_text
        for event in body.events:
            if type(event) is Text:
                add_text(event.text)
                stream(event.text, event.call)
            elif (handle := on_event.get(type(event))) is not None:
                handle(event)

    def _on_usage(self, event: Usage) -> None:
        self._usage.add(event, self._calls.only_model_call)

    def _on_checkpoint(self, event: Checkpoint) -> None:
        self._checkpoint = event

    def _on_artifact(self, event: Artifact) -> None:
        self._artifacts[event.path[:MAX_PATH]] = None
        if len(self._artifacts) > MAX_ARTIFACTS:
            del self._artifacts[next(iter(self._artifacts))]

    def _on_ask(self, body: Ask, _: int) -> None:
        self._asked = body  # the next record says whether it waits or has a verdict

    def _on_waiting(self, body: Waiting, _: int) -> None:
        if self.stop is None:  # a stop refuses the call, even if this record comes after it
            self._waiting[body.call] = body
            asked, self._asked = self._asked, None
            self._waiting_args[body.call] = None
            if asked is not None and asked.call == body.call:
                args = bytes(asked.args)
                if len(args) <= MAX_WAITING_ARGS:
                    self._waiting_args[body.call] = msgspec.Raw(args)

    def _on_verdict(self, body: VerdictRecord, time_ns: int) -> None:
        asked, self._asked = self._asked, None
        # A second ask with the id of a waiting call is refused at once; the call still waits.
        again = asked is not None and asked.call == body.call
        if not again and self._waiting.pop(body.call, None) is not None:
            del self._waiting_args[body.call]
        if body.verdict == "granted":
            self._calls.begin(body, time_ns)

    def _on_conditions_met(self, body: ConditionsMet, _: int) -> None:
        self._conditions = self._conditions or body.conditions

    def _on_estimate(self, body: Estimate, _: int) -> None:
        self._calls.on_estimate(body.call)
        self._usage.estimate(body)

    def _on_call_finished(self, body: CallFinished, time_ns: int) -> None:
        # Without known usage, a call that failed or ended after the stop was cut short, too.
        cut = body.outcome == "cancelled" or (
            (body.outcome == "error" or self.stop is not None) and not self._usage.knows(body.call)
        )
        call = self._calls.finish(body, time_ns, cut=cut)
        if call is not None and call[0] == "model" and (cut or not self._usage.knows(body.call)):
            # The usage of a successful call without a report is unknown: the agent may include
            # it in a later total.
            self._usage.cut(body.call, call[1])

    def _on_result(self, body: ResultMessage, _: int) -> None:
        if self._result is None:
            self._result = body
            self._settle(body)

    def _on_error(self, body: ErrorMessage, _: int) -> None:
        if self._error is None:
            self._error = body
            self._settle(body)

    def _on_stop(self, body: Stop, time_ns: int) -> None:
        if self.stop is None:
            self.stop, self._stop_ns = body, body.at_ns or time_ns
            self._settle(body)

    def _on_rung(self, body: RungRecord, time_ns: int) -> None:
        self._seen = max(self._seen, body.processes)
        self.is_all_seen &= not body.at_least
        self._workspace.on_rung(body)
        if len(self._ladder) < MAX_RUNGS:
            self._ladder.append(LadderStep(body.step, wall_time(body.at_ns or time_ns)))

    def _on_answered(self, body: Answered, _: int) -> None:
        for at in reversed(range(len(self._ladder))):
            if self._ladder[at].step is body.step:
                self._ladder[at] = msgspec.structs.replace(self._ladder[at], answered=body.how)
                return

    def _on_exit(self, body: Exit, _: int) -> None:
        if self.exit is None:
            self.exit = body
            self._workspace.on_exit(body)
            self._settle(body)

    def _on_illegal(self, body: Illegal, _: int) -> None:
        if self.decided is None:
            self._illegal = self._illegal or body

    def _on_refused(self, body: RefusedRecord, time_ns: int) -> None:
        if self.refused is None:
            self.refused = body
            self._settle(body)
            self._is_over(time_ns)

    def _on_lost(self, body: Lost, time_ns: int) -> None:
        if self.lost is None:
            self.lost = body
            self._settle(body)
            self._is_over(time_ns)

    def _on_end(self, body: End, time_ns: int) -> None:
        if self.end is None:
            self.end = body
            # A supervisor that was frozen may finish the log long after the tree ended.
            at_ns = (self.exit.at_ns if self.exit is not None else 0) or body.at_ns
            self._over_ns = min(at_ns, time_ns) if at_ns else time_ns

    def _is_over(self, time_ns: int) -> None:
        if self.end is None:
            self._over_ns = time_ns


def _error_text(error: ErrorMessage) -> str:
    text = error.traceback or (f"{error.kind}: {error.text}" if error.text else error.kind)
    # The end of a traceback holds the error itself.
    return text[-MAX_ERROR:]
