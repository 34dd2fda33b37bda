"""One run: its life from the launch to the report.

`Run` is the object that a program with an embedded supervisor holds.  Its tasks only carry out
what other modules decide: `ladder` the stop, `gate` the calls, `reconcile` the outcome.
"""

import contextlib
import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Final

import trio

from agentctl_protocol.control import Step
from agentctl_protocol.messages import Start
from agentctl_protocol.os_names import to_text
from agentctl_protocol.records import (
    ContainedRecord,
    End,
    Output,
    Started,
    Stop,
    VerdictRecord,
    Waiting,
)
from agentctl_protocol.report import Actor, Report
from agentctl_protocol.spawning import Contained, Exited, ProcessIdentity, Refused, Running, Status
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import KILL_AT_ONCE, Reason, Result
from agentctl_supervisor.conditions.composition import Condition
from agentctl_supervisor.errors import SandboxUnavailableError, SpawnError, StateDirectoryError
from agentctl_supervisor.event_loop.turns import in_turns
from agentctl_supervisor.event_loop.worker_threads import run_sync
from agentctl_supervisor.gate.call_rules import CallRules
from agentctl_supervisor.gate.gate import Gate
from agentctl_supervisor.processes.process_tree import members
from agentctl_supervisor.run import internal_error
from agentctl_supervisor.run.conclusion import write_how_it_ended
from agentctl_supervisor.run.conversation import STOPPING, Conversation
from agentctl_supervisor.run.event_stream import EventStream
from agentctl_supervisor.run.launch_pipes import Plumbing, standard_input
from agentctl_supervisor.run.limit_watch import Watch
from agentctl_supervisor.run.limits import Reached
from agentctl_supervisor.run.live_log import RunLog
from agentctl_supervisor.run.output import OnOutput, OutputPump, StreamName
from agentctl_supervisor.run.workspace_after_run import Aftermath
from agentctl_supervisor.spawner.keepers import Keepers
from agentctl_supervisor.spawner.process import SpawnerProcess
from agentctl_supervisor.stop.ladder import StopWanted
from agentctl_supervisor.stop.ladder_run import Climb
from agentctl_supervisor.store.run_directory import RunDirectory

_LINGER_S: Final = 2.0
"""The seconds that an agent may live after its bye: its interpreter may join threads for ever."""
_PROTOCOL: Final = Actor(kind="supervisor", id="protocol")


class Run:
    """A run of this supervisor.  Made by `Supervisor.start`.

    ``stdin`` is the run's standard input, if its spec asked for one.  The run reads the bytes
    that are sent to it; closing it gives the run an end of file.
    """

    def __init__(
        self,
        *,
        spec: RunSpec,
        directory: RunDirectory,
        log: RunLog,
        plumbing: Plumbing,
        keepers: Keepers,
        start: Start,
        condition: Condition | None,
        on_output: OnOutput | None,
    ) -> None:
        self.spec: Final = spec
        self.id: Final = directory.id
        self.stdin: Final = None if plumbing.stdin is None else standard_input(plumbing.stdin)
        self._directory = directory
        self.keepers: Final = keepers
        self._relay = plumbing.relay
        self._spawner: SpawnerProcess | None = None
        self._callers_error: Exception | None = None
        self._delivery = trio.CancelScope()
        self._launching = trio.CancelScope()
        self._log = log
        gate = Gate(CallRules.of(spec))
        self._watch = Watch(spec, log, gate, condition, self._end)
        log.on_full = self._disk_full
        log.on_intent = self._obey_intent
        self._conversation = Conversation(
            plumbing.channel,
            log,
            start,
            gate,
            on_ask=self._asked,
            on_said=self._watch.heard,
            on_illegal=self._broke_protocol,
        )
        self._outputs: Final[dict[StreamName, OutputPump]] = {
            name: OutputPump(name, fd, self._write_output, on_output, spec.capture_bytes)
            for name, fd in plumbing.outputs()
        }
        self._climb = Climb(log, keepers, self._conversation.ask_to_end, self._give_up)
        self.aftermath: Final = Aftermath(log, directory.path)
        self._under_way = trio.Event()
        self._last_word: Exited | Refused | None = Refused(
            "system", "it was stopped before it began"
        )
        self._tree_ended = trio.Event()
        self._gave_up = False
        self._is_decided = False
        self._finished = trio.Event()
        self._durable = trio.Event()
        self._delivered = trio.Event()
        self._report: Report | None = None
        self._failure = internal_error.Failure()

    def __repr__(self) -> str:
        return f"<Run {self.id} {self._log.fold.state}: {self.spec.command[:60]}>"

    # --- what an embedding program uses -----------------------------------

    @property
    def report(self) -> Report:
        """The report so far; `current_report` also has values that take long to decode."""
        return self._report or self._log.report()

    @property
    def finished(self) -> bool:
        """True if the run is over."""
        return self._report is not None

    async def current_report(self, *, brief: bool = False) -> Report:
        """Return the report so far, or `Report.brief` of it; made in turns with other work."""
        known = self._report
        if known is not None:
            return known.brief() if brief else known
        return await in_turns(self._log.reporting(brief=brief))

    @property
    def brief_report(self) -> Report:
        """`Report.brief` of the report so far."""
        return self._report.brief() if self._report else self._log.brief_report()

    @property
    def stdout(self) -> bytes:
        """The last ``capture_bytes`` that the run wrote to stdout, or to both if they are one."""
        return self._outputs["stdout"].captured.bytes()

    @property
    def stderr(self) -> bytes:
        """The last ``capture_bytes`` that the run wrote to stderr."""
        return self._outputs["stderr"].captured.bytes() if "stderr" in self._outputs else b""

    def members(self) -> list[ProcessIdentity]:
        """Return the run's processes that are alive now."""
        contained = self._log.fold.contained
        return [] if contained is None else members(contained)

    async def wait(self, *, durable: bool = False) -> Report:
        """Wait until the run has finished; return its report.

        *durable*: wait until the report is on the disk, too.
        """
        await (self._durable if durable else self._finished).wait()
        return self.report

    async def wait_started(self) -> Report:
        """Wait until the agent's first instruction may run, or the run has ended before that."""
        await self._under_way.wait()
        return self.report

    async def wait_delivered(self) -> None:
        """Wait until the run has finished and ``on_output`` has received all of its output."""
        await self._delivered.wait()

    async def stop(
        self,
        *,
        result: Result = Result.STOPPED,
        reason: Reason = Reason.CLIENT,
        detail: str = "",
        actor: Actor | None = None,
        grace_s: float | None = None,
        term_grace_s: float | None = None,
    ) -> Report:
        """Ask the agent to end, then send SIGTERM, then SIGKILL.

        Return the report once no process is left.  Cancelling this call does not undo the stop.
        A finished run is left as it is.  A second stop joins the first one, and can only shorten
        its grace periods.
        """
        self.request_stop(
            result=result,
            reason=reason,
            detail=detail,
            actor=actor,
            grace_s=grace_s,
            term_grace_s=term_grace_s,
        )
        return await self.wait()

    async def kill(
        self, *, reason: Reason = Reason.CLIENT, detail: str = "", actor: Actor | None = None
    ) -> Report:
        """Send SIGKILL to the whole tree now; return the report once no process is left."""
        self.request_stop(reason=reason, detail=detail, actor=actor, kill=True)
        return await self.wait()

    def request_stop(
        self,
        *,
        result: Result = Result.STOPPED,
        reason: Reason = Reason.CLIENT,
        detail: str = "",
        actor: Actor | None = None,
        grace_s: float | None = None,
        term_grace_s: float | None = None,
        kill: bool = False,
    ) -> None:
        """Begin a stop, or speed one up, and return at once.

        The stop record is appended before any message or signal is sent.  From that record on no
        call is granted.
        """
        if self._tree_ended.is_set():
            return  # the run has ended, and only its end has to be written down
        try:
            self._begin_stop(
                Stop(
                    result=result,
                    reason=reason,
                    detail=detail,
                    actor=actor or Actor(kind="supervisor", id=f"pid {os.getpid()}"),
                    grace_s=self.spec.grace_s if grace_s is None else grace_s,
                    term_grace_s=self.spec.term_grace_s if term_grace_s is None else term_grace_s,
                    kill=kill or reason in KILL_AT_ONCE,
                )
            )
        except Exception as error:  # noqa: BLE001 - an error in agentctl, not one of the caller
            self._failure.tell(error)

    def _begin_stop(self, stop: Stop) -> None:
        if self._is_decided:
            return
        if self._log.fold.stop is None:
            self._log.decide(stop)
        self._conversation.close_gate(STOPPING)
        # If nothing was launched yet, nothing will be: a slow spawner must not delay a stop.
        self._launching.cancel()
        self._climb.happen(
            StopWanted(stop.grace_s, stop.term_grace_s, stop.kill, self._conversation.can_hear)
        )

    async def send_input(self, value: object) -> None:
        """Send one item to the agent's ``run.inputs()``.

        Raises:
            LocalProtocolError: *value* cannot be expressed in JSON.
            trio.BrokenResourceError: the agent takes no input, or no more input.
        """
        await self._conversation.send_input(value)

    def end_input(self) -> None:
        """Tell the agent that no more input follows."""
        self._conversation.end_input()

    def close_output(self, name: StreamName) -> None:
        """Close our end of the stream *name*; a later write of the run to it gives SIGPIPE."""
        if name in self._outputs:
            self._outputs[name].close()

    def events(self) -> EventStream:
        """Return all records of the run's log, from the first to the last, as they are appended."""
        return EventStream(self._log)

    def listen(self) -> AbstractContextManager[trio.MemoryReceiveChannel[Step]]:
        """Return the steps of the stop ladder that are taken from now on; it ends with the run."""
        return self._climb.listen()

    # --- its life ----------------------------------------------------------

    @property
    def cgroup_fd(self) -> int | None:
        """The descriptor of the run's cgroup directory, if it has one."""
        return None if self.keepers.cgroup is None else self.keepers.cgroup.fd

    async def live(
        self,
        launch: Callable[[], Awaitable[SpawnerProcess]],
        sweep: Callable[[SpawnerProcess], Awaitable[None]],
    ) -> None:
        """Launch, follow and finish the run.  Do not cancel this; stop the run instead.

        *launch* lets a spawner start the run.  *sweep* ends the processes that a dead warden left.

        Raises:
            Exception: the error that ``on_output`` raised.  It stops the run, and is raised once
                the run is over.
        """
        with trio.CancelScope(shield=True):
            try:
                async with trio.open_nursery() as delivery:
                    self._delivery = delivery.cancel_scope
                    for output in self._outputs.values():
                        delivery.start_soon(self._deliver, output)
                    try:
                        await self._live_and_end(launch, sweep)
                    except Exception as error:  # noqa: BLE001 - internal; it ends this run only
                        self._report = await self._end_after(error)
                        delivery.cancel_scope.cancel()
            finally:
                # In every case: no task may wait for ever, and the warden must see our end close.
                self.keepers.close()
                for event in (self._under_way, self._finished, self._durable, self._delivered):
                    event.set()
        if self._callers_error is not None:
            raise self._callers_error

    async def _live_and_end(
        self,
        launch: Callable[[], Awaitable[SpawnerProcess]],
        sweep: Callable[[SpawnerProcess], Awaitable[None]],
    ) -> None:
        await self._live_until_empty(launch)
        if self._last_word is None and self.keepers.may_leave_orphans and self._spawner is not None:
            await sweep(self._spawner)
        self._relay.finish()
        end = await write_how_it_ended(
            self._log,
            self._climb,
            self._conversation,
            tuple(self._outputs.values()),
            self._last_word,
            spawner_died=self._spawner is not None and self._spawner.is_dead(),
            gave_up=self._gave_up,
        )
        self._is_decided = True
        await self.aftermath.write_down()
        await self._conclude(end)
        # After `_conclude`: a task that waits for the run does not wait for the disk.
        await self._log.close_durably()
        await run_sync("records", self._store_report)
        self._directory.unlock()
        self._durable.set()

    def abandon_delivery(self) -> None:
        """Stop handing output to ``on_output``, which may be stuck.  The log has all of it."""
        self._delivery.cancel()

    async def _end_after(self, error: Exception) -> Report:
        """End the run because of *error*; if its end is already written, only keep the error."""
        self._relay.finish()
        self._tree_ended.set()
        report = self._report
        if report is not None:
            internal_error.keep(self._directory.path, error)
        else:
            report = await internal_error.end_run(
                error, self._directory, self._log, self.keepers, self.aftermath
            )
        self._conversation.close()
        self._log.end()
        self._climb.finish()
        self._directory.unlock()
        return report

    async def _live_until_empty(self, launch: Callable[[], Awaitable[SpawnerProcess]]) -> None:
        async with trio.open_nursery() as tasks:
            tasks.start_soon(self._failure.wait)
            tasks.start_soon(self._climb.keep_time)
            tasks.start_soon(self._log.keep_durable, self._conversation.acknowledge)
            for output in self._outputs.values():
                tasks.start_soon(output.read)
            try:
                with self._launching:
                    self._spawner = await launch()
            except (SpawnError, SandboxUnavailableError) as error:
                self._last_word = Refused("sandbox", str(error), error.hint)
            if self._spawner is not None:
                tasks.start_soon(self._conversation.run)
                self._watch.begin()
                tasks.start_soon(self._watch.keep_time)
                tasks.start_soon(self._bury_lingerer)
                tasks.start_soon(self.keepers.follow, self._told)
                await self._tree_ended.wait()
            tasks.cancel_scope.cancel()

    async def _deliver(self, output: OutputPump) -> None:
        try:
            await output.deliver()
        except Exception as error:  # noqa: BLE001 - the caller's code; raised again by `live`
            self._callers_error = error
            self.request_stop(
                reason=Reason.SUPERVISOR_EXIT, detail=f"on_output raised {type(error).__name__}"
            )

    def _told(self, status: Status | None) -> None:
        match status:
            case Contained():
                cgroup = self.keepers.cgroup
                self._log.append(
                    ContainedRecord(
                        warden=status.warden,
                        root=status.root,
                        containment=status.containment,
                        namespace=status.namespace,
                        cgroup="" if cgroup is None else to_text(os.fspath(cgroup.path)),
                    )
                )
                self.keepers.let_agent_begin()
            case Running():
                self._log.append(Started(layers=status.layers))
                self._under_way.set()
                if self._climb.begun:  # stopped while it was starting: count its processes now
                    self._climb.look()
            case _:
                self._last_word = status
                self._tree_ended.set()

    def _give_up(self) -> None:
        self._gave_up = True
        self._last_word = None
        self._tree_ended.set()

    async def _bury_lingerer(self) -> None:
        await self._conversation.over.wait()
        await trio.sleep(_LINGER_S)
        # An outcome that was decided before, by a value or a stop, stays.
        detail = f"it lived on for {_LINGER_S:g} s after its bye"
        self._end(Result.FAILED, Reason.PROTOCOL, detail, _PROTOCOL, kill=True)

    # --- what the agent does -----------------------------------------------

    def decide_calls(
        self, is_meant: Callable[[Waiting], bool], actor: Actor, *, why: str | None
    ) -> list[VerdictRecord | None]:
        """Carry out a person's verdict on calls that wait: see `Conversation.decide`."""
        return self._conversation.decide(is_meant, actor, why=why)

    def _asked(self) -> None:
        # Read after the agent's end: such an ask does not prove that it ignores a stop.
        if self._tree_ended.is_set():
            return
        self._climb.call_asked()
        self._watch.look()

    def _broke_protocol(self, detail: str) -> None:
        self._end(Result.FAILED, Reason.PROTOCOL, detail, _PROTOCOL)

    def _write_output(self, stream: StreamName, data: bytes) -> bool:
        both = len(self._outputs) == 1
        self._log.append_output(Output(stream=stream, data=data, both=both))
        self._watch.look()
        return True

    def _end(
        self, result: Result, reason: Reason, detail: str, actor: Actor, *, kill: bool = False
    ) -> None:
        """Stop the run for what it did; that may be known only after its last process ended."""
        graces = self.spec.grace_s, self.spec.term_grace_s
        kill = kill or reason in KILL_AT_ONCE
        self._begin_stop(Stop(result, reason, detail, actor, *graces, kill=kill))

    def _disk_full(self) -> None:
        self._watch.reach(Reached(Reason.DISK, f"no room for the log in {self._directory.path}"))

    def signal(self) -> bool:
        """Fire the run's ``external()`` condition; return True if it has one that waits."""
        return self._watch.signal()

    # --- the end -----------------------------------------------------------

    async def _conclude(self, end: End) -> None:
        """Append the last record and make the report."""
        self._log.decide(end)
        self._conversation.close()
        self.keepers.close()
        self._report = await in_turns(self._log.reporting(), first=True)
        self._log.end()
        self._under_way.set()
        self._finished.set()
        self._climb.finish()

    def _obey_intent(self, stop: Stop) -> None:
        # The client that left the intent has begun the stop, but may not have finished it.
        if not self._tree_ended.is_set():
            self._conversation.close_gate(STOPPING)
            self._climb.happen(
                StopWanted(stop.grace_s, stop.term_grace_s, stop.kill, self._conversation.can_hear)
            )

    def _store_report(self) -> None:
        self.aftermath.remove_private()
        # If there is no room for the report, each reader makes it from the log.
        with contextlib.suppress(StateDirectoryError):
            self._directory.write_report(self.report)
