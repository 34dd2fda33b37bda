"""Group B, the end: no hostile tree outlives its stop, its root or its supervisor when confined.

The matrix of ``test_matrix.py``, smaller, with all layers on: what confines a run must not
keep its supervisor from ending it.  Standard is tried in the subreaper fallback.
"""

import contextlib
import dataclasses
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Containment, Reason, Result, Rung, Sandbox
from agentctl_supervisor.client import Client
from agentctl_testkit import (
    MARKER_VARIABLE,
    ORDINARY_UID,
    READY_VARIABLE,
    REPOSITORY,
    SECONDS_VARIABLE,
    AgentctlHome,
    RollCall,
    wait_until_gone,
)
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.clock import TimeLimit
from agentctl_testkit.matrix import (
    CONTAINMENT_VARIABLE,
    EVERYBODY,
    Cast,
    SupervisorThread,
    assert_all_up,
    assert_nothing_left,
    in_foreground,
    ladder_of,
)
from agentctl_testkit.ordinary import Installation, OrdinaryHome, installed


@dataclasses.dataclass(frozen=True)
class Level:
    """A level, and the containment in which it has least."""

    sandbox: Sandbox
    containment: Containment

    def __str__(self) -> str:
        return self.sandbox


LEVELS = (
    Level(Sandbox.STRICT, Containment.PID_NAMESPACE),
    Level(Sandbox.STANDARD, Containment.SUBREAPER),
)
BY_NAME = {str(cast): cast for cast in EVERYBODY}
HARDEST = [BY_NAME[name] for name in ("runaway", "comet", "six_roles", "own_subreaper")]
MORE = [
    *HARDEST,
    *(BY_NAME[name] for name in ("stopped_member", "pipe_holder", "channel_holder", "ptracer")),
    BY_NAME["gil_hog-native-called"],
]

hardest = pytest.mark.parametrize("cast", HARDEST, ids=str)
more = pytest.mark.parametrize("cast", MORE, ids=str)
at_each_level = pytest.mark.parametrize("level", LEVELS, ids=str)
for_each_caller = pytest.mark.parametrize(
    "caller",
    [
        pytest.param("self", id="self"),
        pytest.param("user", id="user", marks=needs(Capability.ROOT, Capability.ORDINARY_PYTHON)),
    ],
)
pytestmark = needs(Capability.PID_NAMESPACE)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SupervisorThread]:
    with SupervisorThread(tmp_path_factory.mktemp("stopping") / "home") as thread:
        yield thread


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation | None]:
    if not (Capability.ROOT.here and Capability.ORDINARY_PYTHON.here):
        yield None
        return
    with installed() as installation:
        yield installation


@pytest.fixture
def roll_call(tmp_path: Path) -> Iterator[RollCall]:
    """In a directory that becomes the workspace: a FIFO that is not in sight says nothing."""
    directory = tmp_path / "workspace"
    directory.mkdir()
    with RollCall(directory) as roll_call:
        yield roll_call


def _spec(cast: Cast, level: Level, marker: str, roll_call: RollCall, **more: object) -> RunSpec:
    workspace = str(roll_call.path.parent)
    fields = {"sandbox": level.sandbox, "cwd": workspace, "workspace": workspace}
    # All of it: who imports has to look into each directory of the search path.
    return cast.spec(marker, roll_call, ro=(str(REPOSITORY),), **{**fields, **more})


@more
@at_each_level
def test_stop(
    shared: SupervisorThread,
    cast: Cast,
    level: Level,
    marker: str,
    roll_call: RollCall,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Up the ladder no further than at basic, and then nothing is left."""
    monkeypatch.setenv(CONTAINMENT_VARIABLE, level.containment)
    run = shared.call(shared.supervisor.start, _spec(cast, level, marker, roll_call))
    assert_all_up(cast, marker, roll_call, run.id)

    outcome = Client(shared.home).stop(run.id)

    assert_nothing_left(marker, roll_call, run.id)
    assert outcome.gone
    assert outcome.report.sandbox is level.sandbox
    assert (outcome.report.result, outcome.report.reason) == (Result.STOPPED, Reason.USER)
    assert ladder_of(outcome.report) == cast.ladder
    assert outcome.report.processes.survivors == 0


@more
@at_each_level
def test_kill(
    shared: SupervisorThread,
    cast: Cast,
    level: Level,
    marker: str,
    roll_call: RollCall,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One rung, and nothing is left."""
    monkeypatch.setenv(CONTAINMENT_VARIABLE, level.containment)
    run = shared.call(shared.supervisor.start, _spec(cast, level, marker, roll_call, grace_s=60))
    assert_all_up(cast, marker, roll_call, run.id)

    report = shared.call(run.kill)

    assert_nothing_left(marker, roll_call, run.id)
    assert ladder_of(report) == ((Rung.SIGKILL, "yes"),)
    assert report.processes.survivors == 0


@pytest.mark.parametrize("cast", [cast for cast in MORE if cast.leaves], ids=str)
@at_each_level
def test_the_agent_exits_by_itself(
    shared: SupervisorThread,
    cast: Cast,
    level: Level,
    marker: str,
    roll_call: RollCall,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The root's exit ends the run: what it leaves is killed, and no pipe is waited for."""
    monkeypatch.setenv(CONTAINMENT_VARIABLE, level.containment)
    leaving = _spec(cast, level, marker, roll_call, argv=cast.agent.argv("--leave"))
    run = shared.call(shared.supervisor.start, leaving)
    roll_call.wait_for(cast.members)

    report = shared.call(run.wait)

    assert_nothing_left(marker, roll_call, run.id)
    assert (report.result, report.exit_code) == (Result.FAILED, 7)
    assert report.processes.survivors == 0


@dataclasses.dataclass(frozen=True)
class Ground:
    """What a command line of a caller has: a state directory, and a workspace with the FIFO."""

    home: AgentctlHome
    roll_call: RollCall
    code: Path

    def options(self, level: Level) -> tuple[str, ...]:
        """Of ``agentctl run``; the marker reaches the run by name only."""
        passed = (MARKER_VARIABLE, READY_VARIABLE, SECONDS_VARIABLE)
        return (
            *("--sandbox", level.sandbox, "--ro", str(self.code)),
            *("--workspace", str(self.roll_call.path.parent)),
            *(word for name in passed for word in ("--env", name)),
        )


@contextlib.contextmanager
def _ground(caller: str, installation: Installation | None, tmp_path: Path) -> Iterator[Ground]:
    if caller == "self":
        directory = tmp_path / "workspace"
        directory.mkdir()
        with RollCall(directory) as roll_call:
            yield Ground(AgentctlHome(tmp_path / "home"), roll_call, REPOSITORY)
        return
    assert installation is not None
    directory = installation.directory / secrets.token_hex(4)
    directory.mkdir()
    os.chown(directory, ORDINARY_UID, ORDINARY_UID)
    home = OrdinaryHome(installation, installation.directory / secrets.token_hex(4))
    with RollCall(directory) as roll_call:
        yield Ground(home, roll_call, installation.directory / "checkout")


@hardest
@at_each_level
@for_each_caller
def test_the_supervisor_is_killed(
    cast: Cast,
    level: Level,
    caller: str,
    marker: str,
    installation: Installation | None,
    tmp_path: Path,
) -> None:
    """Within a second nothing is alive, keepers included."""
    with (
        _ground(caller, installation, tmp_path) as ground,
        in_foreground(
            *(ground.home, cast, marker, ground.roll_call, level.containment),
            *ground.options(level),
        ) as supervisor,
    ):
        run_id = supervisor.run_id
        supervisor.process.kill()
        limit = TimeLimit(1.0)
        left = wait_until_gone(marker, run_id, supervisor.spawner_mark, within_s=limit.left_s)

        assert not left, f"alive a second later: {[str(process) for process in left]}"
        assert ground.roll_call.wait_until_gone(limit.left_s)


@hardest
@at_each_level
@for_each_caller
def test_a_frozen_supervisor_is_gone_past(
    cast: Cast,
    level: Level,
    caller: str,
    marker: str,
    installation: Installation | None,
    tmp_path: Path,
) -> None:
    """A stop from another process ends the run without it."""
    with (
        _ground(caller, installation, tmp_path) as ground,
        in_foreground(
            *(ground.home, cast, marker, ground.roll_call, level.containment),
            *ground.options(level),
        ) as supervisor,
    ):
        others = supervisor.and_its_spawner
        supervisor.freeze()
        stop = ground.home.run("stop", "cell", as_ordinary_user=caller == "user")

        assert_nothing_left(marker, ground.roll_call, supervisor.run_id, but=others)
        assert stop.code == 0, stop
        supervisor.thaw()
        supervisor.process.wait(20)
