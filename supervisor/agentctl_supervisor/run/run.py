"""One run: its life from the launch to the report.

`Run` is what a program that embeds a supervisor holds.  Its tasks only carry
out what others decided: `ladder` the stop, `gate` the calls, `reconcile` the
outcome.
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
"""How long a process may live on after its bye; an interpreter's exit can join threads for ever."""
_PROTOCOL: Final = Actor(kind="supervisor", id="protocol")


class Run:
    """A run of this supervisor.  Made by `Supervisor.start`.

    ``stdin`` is the run's standard input if its spec asked for one: bytes sent to it
    are read by the run, closing it is the end of file.
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
        """What is known now; `current_report` also has values that take long to open."""
        return self._report or self._log.report()

    @property
    def finished(self) -> bool:
        """Whether it is over."""
        return self._report is not None

    async def current_report(self, *, brief: bool = False) -> Report:
        """What is known now, or `Report.brief` of it, made in turns with other work."""
        known = self._report
        if known is not None:
            return known.brief() if brief else known
        return await in_turns(self._log.reporting(brief=brief))

    @property
    def brief_report(self) -> Report:
        """`Report.brief` of what is known now."""
        return self._report.brief() if self._report else self._log.brief_report()

    @property
    def stdout(self) -> bytes:
        """The end of what the run wrote to stdout, or to both, up to ``capture_bytes``."""
        return self._outputs["stdout"].captured.bytes()

    @property
    def stderr(self) -> bytes:
        """The end of what the run wrote to stderr, up to ``capture_bytes``."""
        return self._outputs["stderr"].captured.bytes() if "stderr" in self._outputs else b""

    def members(self) -> list[ProcessIdentity]:
        """The run's processes that are alive now."""
        contained = self._log.fold.contained
        return [] if contained is None else members(contained)

    async def wait(self, *, durable: bool = False) -> Report:
        """The report, once the run has finished.  *durable*: and is on the disk."""
        await (self._durable if durable else self._finished).wait()
        return self.report

    async def wait_started(self) -> Report:
        """Return once the agent's first instruction may run, or the run has ended before it."""
        await self._under_way.wait()
        return self.report

    async def wait_delivered(self) -> None:
        """Return once the run has finished and ``on_output`` has seen all of its output."""
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
        """Ask, then SIGTERM, then SIGKILL; return the report once nothing is left.

        Cancelling this call does not undo the stop.  A finished run is left as it is;
        a second stop is one with the first and may only shorten its graces.
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
        """SIGKILL the whole tree now; return the report once nothing is left."""
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
        """Begin a stop, or hasten one, and return at once.

        The stop record is appended before anything is sent or signalled: it is the
        moment from which no call is granted.
        """
        if self._tree_ended.is_set():
            return  # all that is left to do is to write it down
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
        except Exception as error:  # noqa: BLE001 - ours, and the run's: who asked did nothing wrong
            self._failure.tell(error)

    def _begin_stop(self, stop: Stop) -> None:
        if self._is_decided:
            return
        if self._log.fold.stop is None:
            self._log.decide(stop)
        self._conversation.close_gate(STOPPING)
        # Nothing is there yet, and nothing comes: a slow spawner holds up no stop.
        self._launching.cancel()
        self._climb.happen(
            StopWanted(stop.grace_s, stop.term_grace_s, stop.kill, self._conversation.can_hear)
        )

    async def send_input(self, value: object) -> None:
        """Send one item to the agent's ``run.inputs()``.

        Raises:
            LocalProtocolError: *value* is not something that JSON can say.
            trio.BrokenResourceError: the agent takes no input (any more).
        """
        await self._conversation.send_input(value)

    def end_input(self) -> None:
        """Tell the agent that no more input follows."""
        self._conversation.end_input()

    def close_output(self, name: StreamName) -> None:
        """Close the run's *name* as a reader that goes away would: writing to it gives SIGPIPE."""
        if name in self._outputs:
            self._outputs[name].close()

    def events(self) -> EventStream:
        """Every record of the run's log, from the first one to the last as they are appended."""
        return EventStream(self._log)

    def listen(self) -> AbstractContextManager[trio.MemoryReceiveChannel[Step]]:
        """The steps of the ladder as they are taken from now on; ends with the run."""
        return self._climb.listen()

    # --- its life ----------------------------------------------------------

    @property
    def cgroup_fd(self) -> int | None:
        """The directory of the run's cgroup, if it has one."""
        return None if self.keepers.cgroup is None else self.keepers.cgroup.fd

    async def live(
        self,
        launch: Callable[[], Awaitable[SpawnerProcess]],
        sweep: Callable[[SpawnerProcess], Awaitable[None]],
    ) -> None:
        """Launch, follow and finish the run.  Not to be cancelled: stop it instead.

        *launch* has a spawner start it; *sweep* ends what a dead warden left behind.

        Raises:
            Exception: what ``on_output`` raised, once the run is over; it stops the run.
        """
        with trio.CancelScope(shield=True):
            try:
                async with trio.open_nursery() as delivery:
                    self._delivery = delivery.cancel_scope
                    for output in self._outputs.values():
                        delivery.start_soon(self._deliver, output)
                    try:
                        await self._live_and_end(launch, sweep)
                    except Exception as error:  # noqa: BLE001 - ours; it ends this run only
                        self._report = await self._end_after(error)
                        delivery.cancel_scope.cancel()
            finally:
                # Whatever happened, nobody may wait for ever, and the warden sees our end.
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
        # Who waits for the run does not wait for the disk.
        await self._log.close_durably()
        await run_sync("records", self._store_report)
        self._directory.unlock()
        self._durable.set()

    def abandon_delivery(self) -> None:
        """Hand no more output to ``on_output``, which may be stuck.  The log has it all."""
        self._delivery.cancel()

    async def _end_after(self, error: Exception) -> Report:
        """End the run by *error*; if its end is written already, only keep the error."""
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
                if self._climb.begun:  # stopped while it was starting: it has somebody now
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
        # What has settled the outcome before that, a value or a stop, still does.
        detail = f"it lived on for {_LINGER_S:g} s after its bye"
        self._end(Result.FAILED, Reason.PROTOCOL, detail, _PROTOCOL, kill=True)

    # --- what the agent does -----------------------------------------------

    def decide_calls(
        self, is_meant: Callable[[Waiting], bool], actor: Actor, *, why: str | None
    ) -> list[VerdictRecord | None]:
        """A person's verdict on calls that wait: see `Conversation.decide`."""
        return self._conversation.decide(is_meant, actor, why=why)

    def _asked(self) -> None:
        if self._tree_ended.is_set():  # it was read after its end, and ignores nobody
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
        """Stop the run for what it did, which may be known only after its last process."""
        graces = self.spec.grace_s, self.spec.term_grace_s
        kill = kill or reason in KILL_AT_ONCE
        self._begin_stop(Stop(result, reason, detail, actor, *graces, kill=kill))

    def _disk_full(self) -> None:
        self._watch.reach(Reached(Reason.DISK, f"no room for the log in {self._directory.path}"))

    def signal(self) -> bool:
        """Fire the run's ``external()`` condition; whether it has one that waits for that."""
        return self._watch.signal()

    # --- the end -----------------------------------------------------------

    async def _conclude(self, end: End) -> None:
        """From the log to the report."""
        self._log.decide(end)
        self._conversation.close()
        self.keepers.close()
        self._report = await in_turns(self._log.reporting(), first=True)
        self._log.end()
        self._under_way.set()
        self._finished.set()
        self._climb.finish()

    def _obey_intent(self, stop: Stop) -> None:
        # Whoever left it has begun, and may not have come to the end.
        if not self._tree_ended.is_set():
            self._conversation.close_gate(STOPPING)
            self._climb.happen(
                StopWanted(stop.grace_s, stop.term_grace_s, stop.kill, self._conversation.can_hear)
            )

    def _store_report(self) -> None:
        self.aftermath.remove_private()
        # Without room for it, it is made from the log by whoever looks.
        with contextlib.suppress(StateDirectoryError):
            self._directory.write_report(self.report)
