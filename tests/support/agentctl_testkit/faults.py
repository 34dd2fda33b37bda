"""Killing a keeper at a chosen moment, and what must be true of its runs afterwards.

A `Round` is one such experiment, made from a number alone, so that one that fails can be
repeated: a supervisor in a process of its own starts a run; one of the processes that
keep it (`Victim`) is killed, at a named step of the spawn or at a random instant;
then nothing of the run may be alive, its log must hold all that was acknowledged,
and its report must say what the log says.
"""

import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from agentctl_protocol.messages import ErrorMessage, Events, ResultMessage
from agentctl_protocol.records import (
    Created,
    Exit,
    Lost,
    Record,
    RefusedRecord,
    Started,
    Stop,
    VerdictRecord,
)
from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Containment, Reason, Result
from agentctl_supervisor.recover.recovery import current
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import Home, RunDirectory
from agentctl_testkit import (
    AGENTS,
    AgentctlHome,
    Found,
    Hostile,
    RollCall,
    agent_environment,
    alive,
    as_nobody,
    kill_all,
    new_marker,
    ordinary_directory,
    situation,
    wait_until_gone,
)
from agentctl_testkit.clock import Stopwatch, TimeLimit
from agentctl_testkit.embedding import PROGRAM, Order

GONE_WITHIN_S: Final = 1.0
"""Promise P2: how long after its supervisor anything of a run may be alive."""

STEP_DELAY_S: Final = 0.15
"""How long a spawn waits at the step that is struck.  It counts against `GONE_WITHIN_S`."""

_SPREAD_S: Final = 0.01
"""Delay at every step of a round without a named one, so that each step is a wide target."""

_RANDOM_WITHIN_S: Final = 0.8
"""Random instants lie so long after the supervisor began to open: spawning and a little work."""

_COMES_UP_S: Final = 20.0


class Victim(enum.StrEnum):
    """Whom a round kills."""

    EMBEDDING = "embedding program"
    COMMAND = "agentctl run"
    SPAWNER = "spawner"
    WARDEN = "warden"
    ROOT = "init, or the agent where there is none"

    @property
    def is_supervisor(self) -> bool:
        """Whether nobody is left afterwards who could write a report."""
        return self in (Victim.EMBEDDING, Victim.COMMAND)


class Work(enum.StrEnum):
    """What runs while the keeper is killed."""

    TREE = "runaway"  # five processes that ignore signals and left their session
    WORKER = "acknowledged_work"  # a function that notes what was acknowledged
    BRIEF = "exit 4"  # over at once


_NAMESPACE_STEPS: Final = (
    "spawner:started",
    "spawner:forked",
    "warden:forked",
    "warden:decoded",
    "warden:cloned",
    "warden:contained",
    "init:started",
    "init:mounted",
    "init:confined",
    "init:forked",
    "init:reaped",
    "agent:descriptors",
    "agent:confined",
    "agent:reported",
)
_FALLBACK_STEPS: Final = tuple(step for step in _NAMESPACE_STEPS if not step.startswith("init:"))
SPAWN_STEPS: Final[Mapping[Containment, tuple[str, ...]]] = {
    Containment.PID_NAMESPACE: _NAMESPACE_STEPS,
    Containment.SUBREAPER: _FALLBACK_STEPS,
}
"""Every place where `agentctl_child` calls `reach`, in the order of a spawn."""

_LAUNCHED: Final = (Victim.WARDEN, Victim.ROOT)
_WITHOUT_WARDEN: Final = ("spawner:started",)
_WITHOUT_ROOT: Final = (*_WITHOUT_WARDEN, "spawner:forked", "warden:forked", "warden:decoded")


def steps_of(containment: Containment, work: Work) -> tuple[str, ...]:
    """The steps that the spawn of *work* passes, in order."""
    steps = [step for step in SPAWN_STEPS[containment] if step != "init:reaped"]
    if containment is Containment.PID_NAMESPACE:
        if work is not Work.WORKER:
            # There, init spawns a program by itself: no process of ours becomes the agent.
            steps = [step for step in steps if not step.startswith("agent:")]
        if work is Work.BRIEF:
            steps.append("init:reaped")
    return tuple(steps)


@dataclasses.dataclass(frozen=True)
class Round:
    """One experiment.  ``step`` empty: the victim is killed ``instant_s`` after the opening."""

    number: int
    victim: Victim
    containment: Containment
    work: Work
    step: str
    instant_s: float
    forks: bool
    ordinary_user: bool

    def __str__(self) -> str:
        where = self.step or f"{self.instant_s * 1000:.0f}ms"
        who = "-nobody" if self.ordinary_user else ""
        return (
            f"{self.number}-{self.victim.name.lower()}-{self.containment}-{self.work.name.lower()}"
            f"-{where}{'-forked' if self.forks else ''}{who}"
        )

    @property
    def failpoints(self) -> str:
        """The value of ``AGENTCTL_FAILPOINTS``."""
        if self.step:
            return f"{self.step}={STEP_DELAY_S}"
        return ",".join(f"{step}={_SPREAD_S}" for step in _NAMESPACE_STEPS)


@functools.cache
def others_can_run_python() -> bool:
    """Whether we are root and an ordinary user can run this interpreter and this code."""
    if os.geteuid() != 0:
        return False
    try:
        subprocess.run(
            [sys.executable, "-c", "import agentctl_supervisor, agentctl_child"],
            check=True,
            capture_output=True,
            **as_nobody(),
        )
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def rounds(count: int) -> list[Round]:
    """*count* rounds, always the same: two of three at named steps, each of which comes early.

    Every victim is killed at every step at which it exists, in both containments.
    """
    order = random.Random("agentctl")
    named = [
        (victim, containment, work, step)
        for victim in Victim
        for containment in Containment
        for work in Work
        for step in steps_of(containment, work)
        if not (victim is Victim.WARDEN and step in _WITHOUT_WARDEN)
        if not (victim is Victim.ROOT and step in _WITHOUT_ROOT)
    ]
    order.shuffle(named)
    # What a short list must have: each step once, then each victim in both containments.
    seen: set[object] = set()
    first = []
    for cell in named:
        if cell[3] not in seen:
            first.append(cell)
            seen |= {cell[3], cell[:2]}
    for cell in named:
        if cell[:2] not in seen:
            first.append(cell)
            seen.add(cell[:2])
    rest = [cell for cell in named if cell not in first]
    chosen = itertools.cycle([*first, *rest])
    made = []
    for number in range(count):
        if number % 3 < 2:
            victim, containment, work, step = next(chosen)
            instant_s = 0.0
        else:
            victim = order.choice(list(Victim))
            containment = order.choice(list(Containment))
            work, step = order.choice((Work.TREE, Work.WORKER)), ""
            instant_s = order.uniform(0.0, _RANDOM_WITHIN_S)
        made.append(
            Round(
                number=number,
                victim=victim,
                containment=containment,
                work=work,
                step=step,
                instant_s=instant_s,
                # `agentctl run` is the whole program: nobody forks it.
                forks=victim is not Victim.COMMAND and order.random() < 0.5,
                ordinary_user=order.random() < 0.33 and others_can_run_python(),
            )
        )
    return made


@dataclasses.dataclass
class Tally:
    """What a number of rounds came to."""

    rounds: int = 0
    struck: int = 0
    alive_at_strike: int = 0
    survivors: int = 0
    acknowledged: int = 0
    slowest_s: float = 0.0
    slowest: str = ""
    results: "collections.Counter[str]" = dataclasses.field(default_factory=collections.Counter)

    def __str__(self) -> str:
        results = ", ".join(f"{count} {name}" for name, count in sorted(self.results.items()))
        return (
            f"{self.rounds} rounds: {self.struck} victims killed, in {self.alive_at_strike} of them"
            f" processes of a run were alive; {self.survivors} survivors, all gone within"
            f" {self.slowest_s * 1000:.0f} ms ({self.slowest}); {self.acknowledged} acknowledged"
            f" events and grants found again; reports: {results}"
        )


def tell(request: pytest.FixtureRequest, text: str) -> None:
    """Show *text* to whoever runs the tests, also where all of them pass."""
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        sys.stderr.write(f"\n{text}\n")


# --- a supervisor in a process of its own ---------------------------------


class Stage:
    """Where a round is played: a state directory and a FIFO, and the supervisor's process."""

    def __init__(self, directory: Path, *, ordinary_user: bool = False) -> None:
        self.ordinary_user = ordinary_user
        self.directory = directory
        self.marker = new_marker()
        self.home = AgentctlHome(directory / "home")
        self.roll_call = RollCall(directory)
        # With a writer of our own the FIFO never looks as if everybody had left.
        self._writer = os.open(self.roll_call.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.process: subprocess.Popen[bytes] | None = None

    def close(self) -> None:
        """End and reap whatever is left."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            if self.process.stdin is not None:
                self.process.stdin.close()
        os.close(self._writer)
        kill_all(*self.needles)
        self.roll_call.close()

    @property
    def needles(self) -> tuple[str, ...]:
        """What a process of this stage's runs carries: the agents a marker, the keepers
        an id, and the spawner and whatever has just been forked from it its arguments.
        """
        ids = [path.name for path in (self.home.root / "runs").glob("r-*")]
        spawner = [] if self.process is None else [f"--supervisor-pid\0{self.process.pid}\0"]
        return (self.marker, *ids, *spawner)

    def spec(self, work: Work, **fields: Any) -> RunSpec:
        """*work* as a run of this stage."""
        what: Any = {
            Work.TREE: {"argv": Hostile("runaway", 5).argv()},
            Work.WORKER: {"target": f"{AGENTS}/acknowledged_work.py:main"},
            Work.BRIEF: {"argv": ("/bin/sh", "-c", "exit 4")},
        }[work]
        env = agent_environment(self.marker, self.roll_call, seconds=60)
        return RunSpec(**{**what, "env": env, "cwd": "/", **fields})

    def environment(self, containment: Containment | None, failpoints: str = "") -> dict[str, str]:
        """The environment of the supervisor's process."""
        added = {"AGENTCTL_CONTAINMENT": containment.value} if containment else {}
        if failpoints:
            added["AGENTCTL_FAILPOINTS"] = failpoints
            added["AGENTCTL_FAILPOINTS_FIFO"] = str(self.roll_call.path)
        return {**self.home.environment, **added}

    def embed(
        self,
        *specs: RunSpec,
        containment: Containment | None = None,
        failpoints: str = "",
        forks: bool = False,
        subreaper: bool = False,
    ) -> int:
        """Start a program that embeds a supervisor and runs *specs*; its pid."""
        order = Order(fifo=str(self.roll_call.path), specs=specs, forks=forks, subreaper=subreaper)
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(PROGRAM)],
            stdin=subprocess.PIPE,
            env=self.environment(containment, failpoints),
            **(as_nobody() if self.ordinary_user else {}),
        )
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode(order) + b"\n")
        self.process.stdin.flush()
        return self.process.pid

    def command(
        self,
        spec: RunSpec,
        *options: str,
        containment: Containment | None = None,
        failpoints: str = "",
    ) -> int:
        """Start ``agentctl run`` for what *spec* runs; its pid."""
        what = (spec.target,) if spec.target is not None else ("--", *(spec.argv or ()))
        self.process = self.home.start(
            "run",
            *options,
            *what,
            # The command hands its environment on, so it carries the marker like its run.
            environment={
                **self.environment(containment, failpoints),
                **agent_environment(self.marker, self.roll_call, seconds=60),
            },
            as_ordinary_user=self.ordinary_user,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return self.process.pid

    def heard(self, line: str, within_s: float = _COMES_UP_S) -> None:
        """Return once *line* has been said.

        Raises:
            AssertionError: it has not, after *within_s* seconds.
        """
        try:
            self.roll_call.wait_until(
                lambda: any(said.startswith(line) for said in self.roll_call.lines), line, within_s
            )
        except AssertionError as error:
            code = None if self.process is None else self.process.poll()
            raise AssertionError(
                f"{error}; the supervisor's exit code is {code}; alive:{situation(*self.needles)}"
                + "".join(f"\n{told(directory)}" for directory in self.runs())
            ) from None

    def runs(self) -> list[RunDirectory]:
        """The runs of this stage, as somebody sees them who looks later."""
        return Home.open(self.home.environment, create=False).runs()


@contextlib.contextmanager
def staged(*, ordinary_user: bool = False) -> Iterator[Stage]:
    """A stage that the run's own uid can reach, and that is cleared at the end."""
    with contextlib.ExitStack() as stack:
        if os.geteuid() == 0:
            directory = stack.enter_context(ordinary_directory())
        else:
            import tempfile

            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if not ordinary_user and os.geteuid() == 0:
            os.chown(directory, 0, 0)
        stage = Stage(directory, ordinary_user=ordinary_user)
        stack.callback(stage.close)
        yield stage


# --- striking -------------------------------------------------------------


def children(pid: int) -> list[int]:
    """The children of *pid*, oldest first; none if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            text = Path(f"/proc/{pid}/task/{task}/children").read_text()
            found += map(int, text.split())
    return sorted(found)


def spawners_of(supervisor: int) -> list[int]:
    """The spawner of a supervisor, if it has one; its other children are its program's."""
    return [pid for pid in children(supervisor) if _is_spawner(pid)]


def keepers_of(supervisor: int) -> tuple[list[int], list[int], list[int]]:
    """The supervisor's spawner, its wardens, and the roots of its runs, as far as they exist."""
    spawners = spawners_of(supervisor)
    wardens = [pid for spawner in spawners for pid in children(spawner)]
    roots = [pid for warden in wardens for pid in children(warden)]
    return spawners, wardens, roots


def kill(pid: int, parent: int | None = None) -> bool:
    """SIGKILL to the child *pid* of *parent*; whether it was still that when it was sent."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if parent is not None and pid not in children(parent):
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def _is_spawner(pid: int) -> bool:
    try:
        return b"agentctl_child.keepers.spawner" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _strike(victim: Victim, supervisor: int) -> bool:
    """Kill *victim*; False if there is none at this moment."""
    if victim.is_supervisor:
        return kill(supervisor)
    for spawner in spawners_of(supervisor):
        if victim is Victim.SPAWNER:
            return kill(spawner, supervisor)
        for warden in children(spawner):
            if victim is Victim.WARDEN:
                return kill(warden, spawner)
            for root in children(warden):
                return kill(root, warden)
    return False


def _strike_at_step(played: Round, supervisor: int) -> bool:
    """Kill the victim of *played*; False if there is none.  At a step it is there, and looked for.

    One look may miss it: a list of children is not read in one instant.
    """
    limit = TimeLimit(1.0)
    while not _strike(played.victim, supervisor):
        if not played.step or limit.left_s <= 0:
            return False
        os.sched_yield()
    return True


def play(played: Round, tally: Tally) -> None:
    """Play one round and count it.

    Raises:
        AssertionError: a promise was broken; the text says which.
    """
    tally.rounds += 1
    with staged(ordinary_user=played.ordinary_user) as stage:
        spec = stage.spec(played.work)
        if played.victim is Victim.COMMAND:
            supervisor = stage.command(
                spec, containment=played.containment, failpoints=played.failpoints
            )
        else:
            supervisor = stage.embed(
                spec,
                containment=played.containment,
                failpoints=played.failpoints,
                forks=played.forks,
            )
        if played.step:
            stage.heard(f"at {played.step}")
        else:
            if played.victim is not Victim.COMMAND:
                stage.heard("opening")
            time.sleep(played.instant_s)  # the instant is the experiment; nothing waits for it
        tally.alive_at_strike += bool(_of_the_run(stage))
        launched = _is_launched(stage, played)
        struck = (launched or played.victim not in _LAUNCHED) and _strike_at_step(
            played, supervisor
        )
        since = Stopwatch()
        # A brief run may be over by the time that a busy machine lets us strike.
        assert struck or not played.step or played.work is Work.BRIEF, f"no {played.victim}"
        tally.struck += struck
        only_run = struck and launched and not played.victim.is_supervisor
        if not only_run:
            # Too early, too late, or before the launch, for which another spawner is
            # started: what then keeps the run is its supervisor.
            kill(supervisor)
        needles = [n for n in stage.needles if not (only_run and n.startswith("--"))]
        left = wait_until_gone(*needles, within_s=GONE_WITHIN_S)
        took_s = since.uncontended_s
        if took_s > tally.slowest_s:
            tally.slowest_s, tally.slowest = took_s, str(played)
        tally.survivors += len(left)
        assert not left, f"alive after {GONE_WITHIN_S:g} s: {[str(process) for process in left]}"
        # The last look over all of /proc may itself take a while.
        assert took_s < 2 * GONE_WITHIN_S
        assert stage.process is not None
        stage.process.wait(10)
        for directory in stage.runs():
            _check(directory, stage, played, tally)


def _is_launched(stage: Stage, played: Round) -> bool:
    """Whether the spawner has got its run; before that its children only try things out."""
    if played.step:
        return played.step != "spawner:started"
    stage.roll_call.hear()
    return any(line in stage.roll_call.lines for line in ("at spawner:forked", "at warden:forked"))


def _of_the_run(stage: Stage) -> list[Found]:
    own = stage.process.pid if stage.process is not None else 0
    return [process for process in alive(*stage.needles) if process.pid != own]


# --- the truth afterwards -------------------------------------------------


def told(directory: RunDirectory) -> str:
    """The last records of a run, for the message of a test that waited in vain."""
    log = list(LogReader(directory.path, directory.id))
    return f"{directory.id}: " + "".join(f"\n  {record}"[:600] for record in log[-8:])


def records(directory: RunDirectory) -> list[Record]:
    """The log of a run as it is.

    Raises:
        AssertionError: a part of it cannot be read.
    """
    reader = LogReader(directory.path, directory.id)
    found = list(reader)
    assert reader.damaged == []
    assert reader.unknown == 0
    return found


def _check(directory: RunDirectory, stage: Stage, played: Round, tally: Tally) -> None:
    before = [record.body for record in records(directory)]
    report = current(directory)
    tally.results[f"{report.result}/{report.reason}"] += 1
    assert report.finished
    assert report.processes.survivors == 0
    assert report.survivor_list == ()
    assert_report_is_true(report, before, played)
    assert current(directory) == report, "whoever looks again sees something else"
    records(directory)
    tally.acknowledged += _assert_nothing_acknowledged_lost(before, stage.roll_call)


def assert_report_is_true(report: Report, bodies: Sequence[object], played: Round) -> None:
    """The report says what the first record that decides says, and else that the run is lost.

    Raises:
        AssertionError: it does not.
    """
    started = any(isinstance(body, Started) for body in bodies)
    said = (report.result, report.reason)
    for body in bodies:
        match body:
            case Stop():
                assert said == (body.result, body.reason)
                return
            case Lost():
                break
            case RefusedRecord():
                assert not started, "a run that had started is said to have been refused"
                assert said == (Result.REFUSED, body.reason)
                return
            case Exit(code=int() as code):
                assert (said, report.exit_code) == ((Result.FAILED, Reason.EXIT), code)
                assert (played.work, code) == (Work.BRIEF, 4)
                return
            case Exit(signal=int() as number):
                assert (said, report.signal) == ((Result.FAILED, Reason.SIGNAL), number)
                # Nobody signalled the agent, unless it is the tree's root or lost its channel.
                assert played.containment is Containment.SUBREAPER
                assert played.victim is Victim.ROOT
                return
            case ResultMessage() | ErrorMessage():
                raise AssertionError(f"{played.work} came to an end by itself: {body}")
    assert said == (Result.LOST, Reason.SUPERVISOR_DIED)
    assert report.detail


def _assert_nothing_acknowledged_lost(bodies: Sequence[object], roll_call: RollCall) -> int:
    """How much had been acknowledged to the agent; all of it is in the log."""
    roll_call.hear()
    acked = 0
    granted = set()
    for line in roll_call.lines:
        word, _, rest = line.partition(" ")
        if word == "acked":
            acked = max(acked, int(rest))
        elif word == "granted":
            granted.add(rest)
        elif word == "cancelled":
            assert any(isinstance(body, Stop) for body in bodies), "a cancel without a stop"
    if not bodies:
        assert (acked, granted) == (0, set())
        return 0
    assert isinstance(bodies[0], Created)
    heard = sum(len(body.events) for body in bodies if isinstance(body, Events))
    assert heard >= acked, f"{acked} events were acknowledged, the log has {heard}"
    logged = {
        body.call
        for body in bodies
        if isinstance(body, VerdictRecord) and body.verdict == "granted"
    }
    assert granted <= logged, f"granted without a record: {sorted(granted - logged)}"
    return acked + len(granted)
