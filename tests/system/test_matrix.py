"""Every hostile agent on every way in which a run can end, in both containments.

A cell proves by roll call that the whole tree is up, ends it, and finds nothing of
it in all of ``/proc``; then result, reason, ladder and exit code are what the way
of ending says.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import trio

from agentctl_protocol.report import Report
from agentctl_protocol.vocabulary import Containment, Reason, Result, Rung
from agentctl_supervisor import Supervisor, cli
from agentctl_supervisor.client import Client, StopOutcome
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import (
    BAD_SPEAKERS,
    HOSTILE_TREES,
    AgentctlHome,
    Hostile,
    RollCall,
    agent_environment,
    alive,
    kill_all,
    wait_until_gone,
)
from agentctl_testkit.clock import TimeLimit
from agentctl_testkit.matrix import (
    BUSY_S,
    CONTAINMENT_VARIABLE,
    CONTAINMENTS,
    EVERYBODY,
    Cast,
    SupervisorThread,
    assert_all_up,
    assert_nothing_left,
    in_foreground,
    ladder_of,
    root_of,
    survivors,
    the_stop,
)

WITHOUT_A_CHANNEL = [
    cast for cast in EVERYBODY if cast.ladder[-1][0] is not Rung.ASKED or cast.agent.members > 5
]
"""Everybody but those who only differ in what they do when they are asked."""


for_everybody = pytest.mark.parametrize("cast", EVERYBODY, ids=str)
in_both = pytest.mark.parametrize("containment", CONTAINMENTS, ids=str)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SupervisorThread]:
    """A supervisor for the ways of ending that leave it alive."""
    with SupervisorThread(tmp_path_factory.mktemp("matrix") / "home") as thread:
        yield thread


@pytest.fixture(autouse=True)
def _contained(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "containment" in request.fixturenames:
        monkeypatch.setenv(CONTAINMENT_VARIABLE, request.getfixturevalue("containment"))


def _assert_counted(report: Report, cast: Cast) -> None:
    assert report.processes.survivors == 0
    assert report.survivor_list == ()
    if cast.is_countable:
        assert report.processes.seen >= cast.members


# --- the supervisor lives -------------------------------------------------


@for_everybody
@in_both
def test_stop(
    shared: SupervisorThread,
    cast: Cast,
    containment: Containment,
    marker: str,
    roll_call: RollCall,
) -> None:
    """A client's stop climbs no further than it must, and then nothing is left."""
    run = shared.call(shared.supervisor.start, cast.spec(marker, roll_call))
    assert_all_up(cast, marker, roll_call, run.id)

    outcome: StopOutcome = Client(shared.home).stop(run.id, reason="enough")

    assert_nothing_left(marker, roll_call, run.id)
    report = outcome.report
    assert outcome.gone
    assert not outcome.already
    assert (report.result, report.reason) == (Result.STOPPED, Reason.USER)
    assert ladder_of(report) == cast.ladder
    assert report.process_exit_code == cast.stop_code
    _assert_counted(report, cast)


@for_everybody
@in_both
def test_kill(
    shared: SupervisorThread,
    cast: Cast,
    containment: Containment,
    marker: str,
    roll_call: RollCall,
) -> None:
    """A kill is one rung, and no agent has a say in it."""
    run = shared.call(shared.supervisor.start, cast.spec(marker, roll_call, grace_s=60))
    assert_all_up(cast, marker, roll_call, run.id)

    report = shared.call(run.kill)

    assert_nothing_left(marker, roll_call, run.id)
    assert (report.result, report.reason) == (Result.STOPPED, Reason.CLIENT)
    assert ladder_of(report) == ((Rung.SIGKILL, "yes"),)
    assert report.process_exit_code == 137
    _assert_counted(report, cast)
    if cast.is_countable:
        assert report.processes.killed >= cast.members


@for_everybody
@in_both
def test_time_limit(
    shared: SupervisorThread,
    cast: Cast,
    containment: Containment,
    marker: str,
    tmp_path: Path,
) -> None:
    """At its time limit the ladder begins; after both graces nothing is left."""
    limit_s = 0.15
    while True:
        with RollCall(tmp_path) as roll_call:
            run = shared.call(shared.supervisor.start, cast.spec(marker, roll_call, time_s=limit_s))
            report = shared.call(run.wait)
            roll_call.hear()
            assert_nothing_left(marker, roll_call, run.id)
            if len(roll_call.up()) >= cast.members:
                break
        # The tree was not up in time: that proves nothing about it.
        limit_s *= 2
        assert limit_s < 30, f"heard {roll_call.lines}"

    assert (report.result, report.reason) == (Result.LIMIT, Reason.TIME)
    assert report.actor is not None
    assert (report.actor.kind, report.actor.id) == ("limit", "time")
    assert report.process_exit_code == 124
    _assert_counted(report, cast)
    assert report.duration_s is not None
    assert report.duration_s <= limit_s + cast.waited_out_s + BUSY_S


@for_everybody
@in_both
def test_the_agent_exits_by_itself(
    shared: SupervisorThread,
    cast: Cast,
    containment: Containment,
    marker: str,
    roll_call: RollCall,
) -> None:
    """The root's exit ends the run: what it leaves behind is killed, and no pipe waited for."""
    leaving = {"argv": cast.agent.argv("--leave")} if cast.leaves else {}
    run = shared.call(shared.supervisor.start, cast.spec(marker, roll_call, **leaving))
    roll_call.wait_for(cast.members)
    if not cast.leaves:
        os.kill(root_of(run.id, roll_call), signal.SIGKILL)

    report = shared.call(run.wait)

    assert_nothing_left(marker, roll_call, run.id)
    assert report.ladder == ()
    assert report.processes.survivors == 0
    if cast.leaves:
        assert (report.result, report.reason) == (Result.FAILED, Reason.EXIT)
        assert (report.exit_code, report.process_exit_code) == (7, 7)
    else:
        assert (report.result, report.reason) == (Result.FAILED, Reason.SIGNAL)
        assert (report.signal, report.process_exit_code) == (signal.SIGKILL, 137)


@pytest.mark.parametrize("agent", BAD_SPEAKERS, ids=str)
@in_both
def test_a_bad_speaker(
    shared: SupervisorThread,
    agent: Hostile,
    containment: Containment,
    marker: str,
    roll_call: RollCall,
) -> None:
    """Who lies on the channel is ended for it; who only stops in the middle is stopped like any."""
    cast = Cast(agent, ())
    run = shared.call(shared.supervisor.start, cast.spec(marker, roll_call))
    if agent.name == "half_frame":
        roll_call.wait_for(agent.members)
        shared.call(run.stop)

    report = shared.call(run.wait)

    assert_nothing_left(marker, roll_call, run.id)
    assert report.processes.survivors == 0
    match agent.name:
        case "exit_mid_frame":
            assert (report.result, report.reason) == (Result.FAILED, Reason.EXIT)
            assert report.exit_code == 7
            assert report.log.torn_bytes > 0
        case "half_frame":
            assert (report.result, report.reason) == (Result.STOPPED, Reason.CLIENT)
            assert report.partial_text == "kept"
            assert report.log.torn_bytes > 0
        case _:
            assert (report.result, report.reason) == (Result.FAILED, Reason.PROTOCOL)
            assert report.process_exit_code not in (0, 2, 124, 125, 126, 127)


# --- the supervisor leaves ------------------------------------------------


@for_everybody
@in_both
async def test_the_block_is_left(
    cast: Cast, containment: Containment, marker: str, roll_call: RollCall, tmp_path: Path
) -> None:
    """Leaving the supervisor's block ends its runs by their own graces, and waits for that."""
    home = Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)
    async with Supervisor.open(home) as supervisor:
        run = await supervisor.start(cast.spec(marker, roll_call))
        await trio.to_thread.run_sync(assert_all_up, cast, marker, roll_call, run.id)

    assert_nothing_left(marker, roll_call, run.id)
    assert (run.report.result, run.report.reason) == (Result.STOPPED, Reason.SUPERVISOR_EXIT)
    assert ladder_of(run.report) == cast.ladder
    _assert_counted(run.report, cast)


@for_everybody
@in_both
async def test_the_callers_scope_is_cancelled(
    cast: Cast, containment: Containment, marker: str, roll_call: RollCall, tmp_path: Path
) -> None:
    """A cancelled scope around the supervisor ends its runs before the scope is left."""
    home = Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)
    with trio.CancelScope() as scope:
        async with Supervisor.open(home) as supervisor:
            run = await supervisor.start(cast.spec(marker, roll_call))
            await trio.to_thread.run_sync(assert_all_up, cast, marker, roll_call, run.id)
            scope.cancel()
            await run.wait()

    assert scope.cancelled_caught
    assert_nothing_left(marker, roll_call, run.id)
    assert (run.report.result, run.report.reason) == (Result.STOPPED, Reason.SUPERVISOR_EXIT)
    assert ladder_of(run.report) == cast.ladder
    _assert_counted(run.report, cast)


# --- the supervisor is gone, or frozen ------------------------------------


@for_everybody
@in_both
def test_the_supervisor_is_killed(
    cast: Cast, containment: Containment, marker: str, roll_call: RollCall, home: AgentctlHome
) -> None:
    """SIGKILL to the supervisor: within a second nothing is alive, keepers included."""
    with in_foreground(home, cast, marker, roll_call, containment) as supervisor:
        assert alive(supervisor.spawner_mark)
        supervisor.process.kill()
        limit = TimeLimit(1.0)
        needles = (marker, supervisor.run_id, supervisor.spawner_mark)
        left = wait_until_gone(*needles, within_s=limit.left_s)
        alive_unseen = not roll_call.wait_until_gone(limit.left_s)

        assert not left, f"alive a second later: {[str(process) for process in left]}"
        assert not alive_unseen, f"one that no scan finds: {roll_call.lines}"

    report = Client(home.root).show("cell")
    assert (report.result, report.reason) == (Result.LOST, Reason.SUPERVISOR_DIED)
    assert report.processes.survivors == 0
    assert report.process_exit_code == 125


@pytest.mark.parametrize("cast", WITHOUT_A_CHANNEL, ids=str)
@in_both
def test_the_supervisor_is_frozen(
    cast: Cast,
    containment: Containment,
    marker: str,
    roll_call: RollCall,
    home: AgentctlHome,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`agentctl stop` ends the run of a frozen supervisor, which then says the same about it."""
    monkeypatch.setenv("AGENTCTL_HOME", str(home.root))
    with in_foreground(home, cast, marker, roll_call, containment) as supervisor:
        others = supervisor.and_its_spawner
        supervisor.freeze()

        code = cli.main(["stop", "cell", "--reason", "frozen", "-o", "json"])

        said = capsys.readouterr()
        assert code == 0, said
        assert_nothing_left(marker, roll_call, supervisor.run_id, but=others)
        (told,) = msgspec.json.decode(said.out)["runs"]
        assert told["gone"]
        supervisor.thaw()
        supervisor.process.wait(10)

    report = Client(home.root).show("cell")
    assert (report.result, report.reason) == (Result.STOPPED, Reason.USER)
    assert report.processes.survivors == 0
    assert the_stop(supervisor.directory).intent
    # Nobody can be asked over a frozen supervisor's channel.
    without_asking = 143 if cast.term_ends_it else 137
    assert report.process_exit_code == without_asking
    assert supervisor.process.returncode == without_asking
    assert told["report"]["result"] == report.result


# --- the control ----------------------------------------------------------


@pytest.mark.parametrize(
    "agent",
    [agent for agent in HOSTILE_TREES if agent.members > 1 and agent.name != "comet"],
    ids=str,
)
def test_without_containment_the_usual_kill_leaves_survivors(
    agent: Hostile, marker: str, roll_call: RollCall
) -> None:
    """The control: SIGKILL to a plain child is not enough, and the matrix's own scan says so."""
    with subprocess.Popen(
        agent.argv(),
        env=agent_environment(marker, roll_call),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as leader:
        try:
            roll_call.wait_for(agent.members)

            leader.kill()
            leader.wait()

            assert survivors(marker)
            with pytest.raises(AssertionError, match="alive after the end"):
                assert_nothing_left(marker, roll_call)
        finally:
            kill_all(marker)
