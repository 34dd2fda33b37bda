"""The `Supervisor`: owns runs, and ends them all when it ends."""

import contextlib
import errno
import functools
import itertools
import os
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import trio

from agentctl_protocol.os_names import to_text
from agentctl_protocol.records import Created
from agentctl_protocol.report import Report
from agentctl_protocol.shared_counters import used_up
from agentctl_protocol.spawning import Launch
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import CONFINED, Containment, Reason, Sandbox
from agentctl_supervisor.conditions.composition import Condition
from agentctl_supervisor.conditions.json_form import from_value
from agentctl_supervisor.control.server import ControlServer
from agentctl_supervisor.errors import (
    AgentctlError,
    SandboxUnavailableError,
    SpawnError,
    SupervisorGoneError,
    cannot_start,
)
from agentctl_supervisor.event_loop.readiness import poll_thread
from agentctl_supervisor.event_loop.worker_threads import worker_threads
from agentctl_supervisor.observe.list_runs import current_report
from agentctl_supervisor.policy import fresh_directories
from agentctl_supervisor.processes import broken_pipe, oom_kills, own_limits
from agentctl_supervisor.processes.own_uids import own_uids
from agentctl_supervisor.processes.process_tree import (
    boot_id,
    children_of,
    identity_of,
    pid_namespace,
)
from agentctl_supervisor.processes.run_cgroup import make_run_cgroup
from agentctl_supervisor.recover.orphans import become_subreaper, sweep_own, wait_swept
from agentctl_supervisor.report.estimates import DEFAULT, Estimator
from agentctl_supervisor.run.launch import check_start, launch_of, policy_of, settled, start_of
from agentctl_supervisor.run.launch_pipes import TWO_PIPES, OutputPipes, TheirEnds, lay
from agentctl_supervisor.run.live_log import RunLog
from agentctl_supervisor.run.output import OnOutput
from agentctl_supervisor.run.pipe_relay import threads_kept
from agentctl_supervisor.run.resuming import chain_of, told_of
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.run.workspace_after_run import AT_ONCE
from agentctl_supervisor.spawner.keepers import Keepers
from agentctl_supervisor.spawner.process import SpawnerProcess
from agentctl_supervisor.spawner.start import StartedSpawner
from agentctl_supervisor.spawner.supply import SpawnerSupply
from agentctl_supervisor.store import socket_files
from agentctl_supervisor.store.run_directory import Home

_RECORD_THREADS: Final = 8
"""The threads for logs that are synced, and reports that are stored, at the same time."""

CONTAINMENT_VARIABLE: Final = "AGENTCTL_CONTAINMENT"
"""The environment variable that forces a containment, for tests of the weaker one.

Its value is ``pid-namespace`` or ``subreaper``."""


class Supervisor:
    """Starts runs, answers clients about them, and ends all of them before it ends.

    Made by `Supervisor.open`::

        async with Supervisor.open() as supervisor:
            run = await supervisor.start(RunSpec(argv=["/bin/true"]))
            report = await run.wait()
    """

    def __init__(
        self,
        home: Home,
        nursery: trio.Nursery,
        *,
        subreaper: bool,
        spawner: StartedSpawner | None = None,
        estimator: Estimator = DEFAULT,
    ) -> None:
        self.home: Final = home
        self._estimator = estimator
        self._subreaper = subreaper
        if subreaper:
            become_subreaper()
        self._nursery = nursery
        self._runs: dict[str, Run] = {}
        self._spawners = SpawnerSupply(nursery, spawner)
        self._closing = False
        # Clients are answered until the last run is gone, even while we are cancelled.
        self._serving = trio.CancelScope(shield=True)
        self._own_uids = own_uids(os.getpid())
        own = identity_of(os.getpid())
        if own is None:
            raise SpawnError("/proc is not mounted here", "mount -t proc proc /proc")
        self._identity = own
        self._control = ControlServer(
            home.socket_path(socket_files.name_of(own, next(_numbers))),
            self._runs.get,
            self.live_runs,
        )

    def __repr__(self) -> str:
        return f"<Supervisor of {len(self.live_runs())} live runs in {self.home.root}>"

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        home: Home | None = None,
        *,
        subreaper: bool = False,
        spawner: StartedSpawner | None = None,
        estimator: Estimator = DEFAULT,
    ) -> AsyncIterator["Supervisor"]:
        """Open a supervisor whose runs end with the block.

        *subreaper*: also end the processes that are left if spawner and warden of a run without
        a pid namespace were both killed.  Only for a process that starts no other processes
        itself: it adopts, and kills, all orphans among its descendants.
        *spawner*: one that was started already; its creator must close it if this supervisor
        never took it over.
        *estimator*: estimates the tokens of model calls that are cut short; `report.estimates`.

        The runs are stopped (reason ``supervisor_exit``) with their own grace periods when the
        block is left, when an exception leaves it, and when a scope around it is cancelled.
        This then waits until they are gone.

        Raises:
            StateDirectoryError: runs or sockets cannot be kept in their directories.
        """
        home = home or Home.open(create=True)
        # Not raised inside the nursery, which would wrap it in an ExceptionGroup.
        callers: BaseException | None = None
        left_in_peace = False
        supervisor: Supervisor | None = None
        async with _for_life(), trio.open_nursery() as nursery:
            try:
                supervisor = cls(
                    home,
                    nursery,
                    subreaper=subreaper,
                    spawner=spawner,
                    estimator=estimator,
                )
                nursery.start_soon(supervisor._serve)
                supervisor._spawners.warm_up()
                yield supervisor
                left_in_peace = True
            except trio.Cancelled:
                raise
            except BaseException as error:  # noqa: BLE001 - raised again below
                callers = error
            finally:
                if supervisor is not None:
                    with trio.CancelScope(shield=True):
                        await supervisor._close(deliver=left_in_peace)
                nursery.cancel_scope.cancel()
        if callers is not None:
            raise callers

    def live_runs(self) -> Sequence[Run]:
        """Return the runs that have not finished, oldest first."""
        return [run for run in self._runs.values() if not run.finished]

    async def start(
        self,
        spec: RunSpec,
        *,
        on_output: OnOutput | None = None,
        stop_when: Condition | None = None,
        output_pipes: OutputPipes = TWO_PIPES,
    ) -> Run:
        """Start a run and return at once; `Run.wait_started` and `Run.wait` wait for it.

        *on_output* is awaited with every piece of output, ``("stdout" | "stderr", bytes)``;
        while it is slow, it slows down the run.
        *output_pipes*: with ``OutputPipes(one=True)`` stdout and stderr keep their order, but
        cannot be distinguished.
        *stop_when* is the condition that ends the run.  ``spec.stop_when`` is the same as text,
        but cannot contain functions.

        Raises:
            SpecError: the spec cannot be run as it is written.
            NoSuchRunError, CannotResumeError: the run to resume does not exist, or cannot be
                resumed.
            NameInUseError: a live run has this name.
            SpawnError, StateDirectoryError: this supervisor cannot start or keep a run now.
        """
        spec = settled(spec, os.environ)
        if self._closing:
            raise SupervisorGoneError("this supervisor is ending: it starts no more runs")
        if stop_when is not None:
            spec = msgspec.structs.replace(spec, stop_when=str(stop_when))
        elif spec.stop_when is not None:
            stop_when = from_value(spec.stop_when)
        chain: list[Report] = []
        if spec.resumes is not None:
            # In a thread: its log may be a gigabyte, and its remaining processes are killed first.
            try:
                chain = await trio.to_thread.run_sync(self._chain, spec.resumes)
            except RuntimeError as error:  # no more threads for this user
                raise SpawnError(
                    f"cannot read {spec.resumes}: {error}", "see `ulimit -u`"
                ) from None
            if self._closing:
                raise SupervisorGoneError("this supervisor is ending: it starts no more runs")
        run, started = self._make_run(spec, on_output, stop_when, output_pipes, chain)
        self._runs[run.id] = run
        self._nursery.start_soon(self._live, run, started)
        return run

    def _make_run(
        self,
        spec: RunSpec,
        on_output: OnOutput | None,
        condition: Condition | None,
        output_pipes: OutputPipes,
        chain: Sequence[Report],
    ) -> tuple[Run, "_Prepared"]:
        directory = self.home.create_run(spec.stored())
        with contextlib.ExitStack() as undo:
            undo.callback(self.home.discard, directory)
            own_uid = None
            if os.geteuid() == 0 and spec.sandbox in CONFINED:
                own_uid = self._own_uids.take()
                undo.callback(self._own_uids.give_back, own_uid)
            # Decide now, and not when a spawner is ready: the environment and the working
            # directory are our process's, and may change meanwhile.
            policy = policy_of(
                spec,
                os.environ,
                run_directory=os.fspath(directory.path),
                own_uid=own_uid,
            )
            launch = launch_of(
                spec, directory.id, policy, own_uid, os.path.abspath(directory.exit_path)
            )
            start = start_of(spec, directory.id, policy)
            if chain:
                start = told_of(start, chain[0], chain[1:])
            check_start(start)
            fresh_directories.make(policy, own_uid)
            try:
                plumbing, theirs = lay(spec.stdin, output_pipes)
            except OSError as error:
                raise cannot_start(error) from None
            undo.callback(theirs.close)
            undo.callback(plumbing.close)
            if not own_limits.leaves_a_reserve(max(theirs.fds)):
                raise cannot_start(OSError(errno.EMFILE, os.strerror(errno.EMFILE)))
            log = RunLog(directory, spec)
            log.estimator = self._estimator
            undo.callback(log.close)
            log.append(
                Created(
                    supervisor=self._identity,
                    boot_id=boot_id(),
                    socket=to_text(self._control.path),
                    uid=os.getuid(),
                    workspace=policy.workspace.told if policy.workspace else "",
                    private_workspace=bool(policy.workspace and policy.workspace.private),
                    unseen_variables=tuple(dict.fromkeys(name for name, _ in policy.unseen)),
                    oom_kills=oom_kills.count(),
                    pid_namespace=pid_namespace(),
                )
            )
            run = Run(
                spec=spec,
                directory=directory,
                log=log,
                plumbing=plumbing,
                keepers=Keepers(plumbing.status, plumbing.begin, make_run_cgroup(directory.id)),
                start=start,
                condition=condition,
                on_output=on_output,
            )
            if policy.level is Sandbox.STANDARD:
                run.aftermath.own_uid = own_uid
            undo.pop_all()
        return run, _Prepared(launch, theirs)

    def _chain(self, resumes: str) -> list[Report]:
        """Return the report of the run *resumes*, and of the earlier runs that it resumed."""
        report = current_report(self.home.find(resumes))
        return chain_of(report, self._report_of) or [report]

    def _report_of(self, run_id: str) -> Report | None:
        try:
            return current_report(self.home.find(run_id))
        except AgentctlError:  # gone or damaged: the work before it is not known
            return None

    async def _live(self, run: Run, prepared: "_Prepared") -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self._runs.pop, run.id)
            own_uid = prepared.launch.host_uid
            if own_uid is not None:
                stack.callback(self._give_back, own_uid, run)
            await run.live(functools.partial(self._launch, run, prepared, stack), self._sweep)

    async def _launch(
        self, run: Run, prepared: "_Prepared", stack: contextlib.ExitStack
    ) -> SpawnerProcess:
        """Let a spawner start *run*; *stack* gives back at its end what it got for its life."""
        launch, theirs = prepared.launch, prepared.theirs
        with contextlib.closing(theirs):
            spawner = await self._spawners.ready()
            containment = _containment(run.spec, spawner, os.environ.get(CONTAINMENT_VARIABLE))
            launch = msgspec.structs.replace(launch, containment=containment)
            if launch.host_uid is None and _wants_uid(launch):
                uid = self._own_uids.take()
                stack.callback(self._give_back, uid, run)
                launch = msgspec.structs.replace(launch, host_uid=uid)
            if launch.host_uid is not None:
                theirs.give_streams(launch.host_uid)
            await spawner.launch(launch, theirs.fds, run.cgroup_fd)
            return spawner

    def _give_back(self, uid: int, run: Run) -> None:
        # If a process survived, the uid stays taken: that process could kill the next run with it.
        if run.report.processes.survivors == 0:
            self._own_uids.give_back(uid)

    async def _sweep(self, spawner: SpawnerProcess) -> None:
        """End the processes that a dead warden left, or wait until its spawner has done so."""
        async with trio.open_nursery() as nursery:
            # A spawner that is being killed, too, has children until it dies, and sweeps none.
            nursery.start_soon(self._give_up_with, spawner, nursery.cancel_scope)
            await wait_swept(spawner.pid, self._wardens())
            nursery.cancel_scope.cancel()
        if not self._subreaper:
            return
        # One sweep at a time, and none while a spawner is started: a sweep would take the new
        # spawner, or the other sweep's process, for an orphan.
        async with self._spawners.settled:
            current = self._spawners.pid
            keep = {spawner.pid, *([] if current is None else [current]), *self._wardens()}
            # The children of a dying spawner become ours before the spawner counts as dead.
            if spawner.is_dead() or not keep.issuperset(children_of(os.getpid())):
                await sweep_own(keep)

    async def _give_up_with(self, spawner: SpawnerProcess, scope: trio.CancelScope) -> None:
        await spawner.wait_dead()
        scope.cancel()

    def _wardens(self) -> set[int]:
        return {pid for run in self._runs.values() if (pid := run.keepers.warden_pid) is not None}

    # --- its own life ------------------------------------------------------

    async def _serve(self) -> None:
        with self._serving:
            # Raise here if the scope was cancelled before this task began.
            await trio.lowlevel.checkpoint()
            await self._control.serve()

    async def _close(self, *, deliver: bool) -> None:
        """End all runs.  *deliver*: let each ``on_output`` get the rest of its output."""
        self._closing = True
        for run in self.live_runs():
            run.request_stop(reason=Reason.SUPERVISOR_EXIT, detail="its supervisor ended")
            # With a thousand runs, the first agents and the clients must be handled before the
            # last stop is requested.
            await trio.lowlevel.checkpoint()
        for run in list(self._runs.values()):
            await run.wait(durable=True)
            if not deliver:
                run.abandon_delivery()
            await run.wait_delivered()
        self._serving.cancel()
        self._control.close()
        await self._spawners.close()


@dataclass(frozen=True)
class _Prepared:
    """The launch and the descriptors of a run that waits for a spawner."""

    launch: Launch
    theirs: TheirEnds


@contextlib.asynccontextmanager
async def _for_life() -> AsyncIterator[None]:
    """Keep the signal setting and the threads that a supervisor needs until the block ends.

    If a run closes a pipe, our write to it must give an error and not kill us.  All threads that
    a stop or a run's end may need are started in advance, because a run could choose a moment at
    which no thread can be started.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(broken_pipe.as_an_error())
        try:
            stack.enter_context(poll_thread())
            stack.enter_context(threads_kept())
            stack.enter_context(
                worker_threads(records=_RECORD_THREADS, workspaces=AT_ONCE, conditions=1)
            )
        except RuntimeError:
            raise SpawnError(
                "no threads for a supervisor can be started",
                f"used up: {used_up(errno.EAGAIN)}",
            ) from None
        yield


_numbers: Final = itertools.count()


def _wants_uid(launch: Launch) -> bool:
    """Return True if a run of root needs another uid, so that it cannot kill its keepers."""
    return os.geteuid() == 0 and launch.containment is Containment.SUBREAPER and launch.sealed


def _containment(spec: RunSpec, spawner: SpawnerProcess, forced: str | None) -> Containment:
    """Return the strongest containment for *spec* that this machine offers.

    Raises:
        SandboxUnavailableError: this machine cannot keep the promises of the requested level.
    """
    if spec.sandbox is Sandbox.NONE:
        return Containment.SUBREAPER
    if forced:
        try:
            return Containment(forced)
        except ValueError:
            raise SandboxUnavailableError(
                f"{CONTAINMENT_VARIABLE}={forced[:40]}: no such containment",
                f"{' or '.join(Containment)}",
            ) from None
    if not spawner.ready.pid_namespace:
        return Containment.PID_NAMESPACE
    if spec.sandbox is Sandbox.STRICT:
        raise SandboxUnavailableError(
            f"strict needs namespaces, and there are none: {spawner.ready.pid_namespace}",
            "--sandbox standard does without; agentctl doctor says what is missing",
        )
    if spawner.ready.sealed:
        return Containment.SUBREAPER
    raise SandboxUnavailableError(
        f"no pid namespace here ({spawner.ready.pid_namespace}), and the fallback cannot be sealed",
        "--sandbox none runs it with what there is",
    )
