"""The cells of the matrix: hostile agents as runs, and the proof that nothing of one is left.

A cell first waits until every member of its tree has answered the roll call, then
lets the tree be ended, and then looks for survivors: over all of ``/proc``, by the
marker in the environment, and by the FIFO that every member holds open, which no
process escapes by being quicker than the scan.
"""

import contextlib
import dataclasses
import os
import signal
import subprocess
import threading
from collections.abc import Awaitable, Callable, Collection, Iterator
from pathlib import Path
from typing import Final, ParamSpec, Self, TypeVar

import msgspec
import trio

from agentctl_protocol.records import RecordBody, Stop
from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Containment, Rung
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import Home
from agentctl_supervisor.supervisor import Supervisor
from agentctl_testkit import (
    AGENTS,
    HOSTILE_TREES,
    AgentctlHome,
    Found,
    Hostile,
    RollCall,
    agent_environment,
    alive,
    wait_until_gone,
)

CONTAINMENT_VARIABLE: Final = "AGENTCTL_CONTAINMENT"
CONTAINMENTS: Final = tuple(Containment)
GRACE_S: Final = 0.2
"""For a rung that the agent ignores: short, because it is waited out."""
PATIENCE_S: Final = 20.0
"""For a rung that the agent obeys: never waited out, so that a busy machine fails no test."""
BUSY_S: Final = 2.0
"""How much later than its clocks say a run may end on a machine that does much else."""

_KEEPER_TITLES: Final = ("agentctl warden ", "agentctl init ")

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Cast:
    """A hostile agent in the role of a run.

    ``ladder``: how a stop with graces ends it, as rung and answer.  ``target``: it is a
    function, called with ``input``, instead of a program.
    """

    agent: Hostile
    ladder: tuple[tuple[Rung, str], ...]
    target: str | None = None
    input: str | None = None

    def __str__(self) -> str:
        return f"{self.agent}-called" if self.target else str(self.agent)

    @property
    def members(self) -> int:
        """How many processes it becomes."""
        return self.agent.members

    @property
    def leaves(self) -> bool:
        """Whether it can be told to exit by itself."""
        return self.target is None

    @property
    def is_countable(self) -> bool:
        """Whether a scan of ``/proc`` finds all of its members; a comet is never there."""
        return self.agent.name != "comet"

    def spec(self, marker: str, roll_call: RollCall, **fields: object) -> RunSpec:
        """It as a run with short graces; *fields* of the spec replace these."""
        what: dict[str, object] = (
            {"argv": self.agent.argv()}
            if self.target is None
            else {"target": self.target, "input": self.input}
        )
        what |= {
            "env": agent_environment(marker, roll_call),
            "cwd": "/",
            "grace_s": self.grace_s,
            "term_grace_s": self.term_grace_s,
        }
        return RunSpec(**{**what, **fields})  # type: ignore[arg-type]

    def command_line(self, *more: str) -> tuple[str, ...]:
        """What follows the options of ``agentctl run``."""
        if self.target is None:
            return ("--", *self.agent.argv(*more))
        given = () if self.input is None else ("--input", msgspec.json.encode(self.input).decode())
        return (*given, self.target)

    @property
    def grace_s(self) -> float:
        """How long a stop waits for it to do what it is asked."""
        return PATIENCE_S if self.ladder == _ASKED else GRACE_S

    @property
    def term_grace_s(self) -> float:
        """How long a stop waits for it to end on SIGTERM."""
        return PATIENCE_S if self.term_ends_it else GRACE_S

    @property
    def waited_out_s(self) -> float:
        """How long a stop takes by its clocks: the graces that it ignores."""
        return sum(GRACE_S for _, answer in self.ladder if answer == "no")

    @property
    def term_ends_it(self) -> bool:
        """Whether its root ends on SIGTERM."""
        return self.agent.name not in _STUBBORN

    @property
    def stop_code(self) -> int:
        """The exit code of ``agentctl run`` after a stop with graces."""
        return 137 if self.ladder[-1][0] is Rung.SIGKILL else 143


_DEAF: Final = (Rung.ASKED, "no channel")
_TERM: Final = (_DEAF, (Rung.SIGTERM, "yes"))
_KILL: Final = (_DEAF, (Rung.SIGTERM, "no"), (Rung.SIGKILL, "yes"))
_HEARS_AND_STAYS: Final = ((Rung.ASKED, "no"), (Rung.SIGTERM, "yes"))
_ASKED: Final = ((Rung.ASKED, "yes"),)
_CALLED_AND_DEAF: Final = ((Rung.ASKED, "no"), (Rung.SIGTERM, "no"), (Rung.SIGKILL, "yes"))

_STUBBORN: Final = frozenset({"runaway", "flooder", "gil_hog"})
"""Those whose root does not end on SIGTERM."""
_GREETERS: Final = frozenset({"channel_holder", "half_frame"})
"""Those that say hello, and can therefore be asked."""


def _ladder(name: str) -> tuple[tuple[Rung, str], ...]:
    if name in _STUBBORN:
        return _KILL
    return _HEARS_AND_STAYS if name in _GREETERS else _TERM


PROGRAMS: Final = tuple(
    Cast(agent, _ladder(agent.name)) for agent in (*HOSTILE_TREES, Hostile("half_frame", 1))
)
# A tree that is built while its module is imported never comes to its function.
FUNCTIONS: Final = (
    Cast(Hostile("gil_hog", 1), _ASKED, f"{AGENTS}/gil_hog.py:hog"),
    Cast(
        Hostile("gil_hog", 1, ("native",)), _CALLED_AND_DEAF, f"{AGENTS}/gil_hog.py:hog", "native"
    ),
    Cast(Hostile("six_roles", 6), _ASKED, f"{AGENTS}/six_roles.py:never"),
    Cast(Hostile("runaway", 5), _ASKED, f"{AGENTS}/runaway.py:never"),
)
EVERYBODY: Final = PROGRAMS + FUNCTIONS


# --- who is left ----------------------------------------------------------


def survivors(marker: str, run_id: str = "", *, but: Collection[int] = ()) -> list[Found]:
    """The live processes of a run, *but* for these pids.

    A function runs in a fork without an exec: ``/proc`` shows the environment of the
    spawner for it and its forks, and its title has the *run_id*.
    """
    needles = (marker, run_id) if run_id else (marker,)
    return [
        process
        for process in alive(*needles)
        if process.pid not in but and not process.command.startswith(_KEEPER_TITLES)
    ]


def assert_all_up(cast: Cast, marker: str, roll_call: RollCall, run_id: str = "") -> None:
    """Return once every member of *cast* is up, and the scan that looks for survivors sees it.

    Raises:
        AssertionError: fewer are up, or seen.
    """
    roll_call.wait_for(cast.members)
    seen = survivors(marker, run_id)
    wanted = cast.members if cast.is_countable else 1
    assert len(seen) >= wanted, f"the scan is blind: {[str(process) for process in seen]}"


def assert_nothing_left(
    marker: str, roll_call: RollCall, run_id: str = "", *, but: Collection[int] = ()
) -> None:
    """No process of the run is alive at this moment, and soon none of its keepers is.

    Raises:
        AssertionError: its text says who survived.
    """
    left = survivors(marker, run_id, but=but)
    assert not left, f"alive after the end: {[str(process) for process in left]}"
    assert not roll_call.anyone_left, f"one is alive that no scan finds; heard {roll_call.lines}"
    if run_id:
        # The warden says that the tree is empty before it leaves.
        keepers = wait_until_gone(run_id, within_s=1.0)
        assert not keepers, f"keepers are left: {[str(process) for process in keepers]}"


def children(pid: int) -> set[int]:
    """The pids of the children of *pid*."""
    found: set[int] = set()
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            found.update(map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split()))
    return found


def root_of(run_id: str, roll_call: RollCall) -> int:
    """The pid, as we see it, of the member that said it is the root."""
    (said,) = (line.split()[2] for line in roll_call.lines if line.startswith("up root "))
    for process in alive(run_id):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            inner = next(line for line in status.splitlines() if line.startswith("NSpid:"))
            if inner.split()[-1] == said:
                return process.pid
    raise AssertionError(f"no root: heard {roll_call.lines}")


# --- what is written about it ---------------------------------------------


def ladder_of(report: Report) -> tuple[tuple[Rung, str], ...]:
    """The rungs of *report* with their answers."""
    return tuple((step.step, step.answered) for step in report.ladder)


def bodies(run_directory: Path) -> list[RecordBody]:
    """The bodies of all records of a run's log."""
    return [record.body for record in LogReader(run_directory) if record.body is not None]


def the_stop(run_directory: Path) -> Stop:
    """The one stop record of a run's log.

    Raises:
        ValueError: there are none, or several.
    """
    (stop,) = (body for body in bodies(run_directory) if isinstance(body, Stop))
    return stop


# --- a supervisor that can be killed --------------------------------------


@dataclasses.dataclass(frozen=True)
class Foreground:
    """``agentctl run`` and its one run."""

    process: "subprocess.Popen[bytes]"
    home: AgentctlHome

    @property
    def directory(self) -> Path:
        """Where its run is kept."""
        (path,) = (self.home.root / "runs").glob("r-*")
        return path

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.directory.name

    @property
    def spawner_mark(self) -> str:
        """What only the command line of its spawner has."""
        return f"--supervisor-pid\0{self.process.pid}\0"

    @property
    def and_its_spawner(self) -> set[int]:
        """The pids that are no part of its run."""
        return {self.process.pid, *children(self.process.pid)}

    def freeze(self) -> None:
        """SIGSTOP; it has stopped when this returns."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def in_foreground(
    home: AgentctlHome,
    cast: Cast,
    marker: str,
    roll_call: RollCall,
    containment: Containment,
    *options: str,
) -> Iterator[Foreground]:
    """``agentctl run --name cell``, with the whole tree of *cast* up.  It is killed at the end."""
    process = home.start(
        *("run", "--name", "cell", "--grace", f"{cast.grace_s}s"),
        *("--term-grace", f"{cast.term_grace_s}s", *options, *cast.command_line()),
        environment={**agent_environment(marker, roll_call), CONTAINMENT_VARIABLE: containment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    with process:
        try:
            roll_call.wait_for(cast.members)
            foreground = Foreground(process, home)
            assert_all_up(cast, marker, roll_call, foreground.run_id)
            yield foreground
        finally:
            process.kill()


# --- many cells, one supervisor -------------------------------------------


class SupervisorThread:
    """A supervisor in an event loop of its own, for tests that share one.

    `call` runs an async function in that loop; what it gives, or raises, comes back.
    """

    supervisor: Supervisor

    def __init__(self, home: Path) -> None:
        self.home = home
        self._open = threading.Event()
        self._over: trio.Event
        self._token: trio.lowlevel.TrioToken
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="supervisor")

    def __enter__(self) -> Self:
        self._thread.start()
        self._open.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_exc: object) -> None:
        # One that has ended before did so by a failure, which is told below.
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._over.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def call(
        self, function: Callable[_P, Awaitable[_T]], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """What *function* gives when it is awaited in the supervisor's loop."""

        async def call() -> _T:
            return await function(*args, **kwargs)

        return trio.from_thread.run(call, trio_token=self._token)

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001 - raised again in the other thread
            self._failure = error
        finally:
            self._open.set()

    async def _main(self) -> None:
        self._over = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        home = Home.open({"AGENTCTL_HOME": os.fspath(self.home)}, create=True)
        async with Supervisor.open(home) as self.supervisor:
            self._open.set()
            await self._over.wait()
