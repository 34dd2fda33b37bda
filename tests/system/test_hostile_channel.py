"""Agents misuse the channel: every lie has its reason, every flood is bounded and can be stopped.

``protocol`` is the reason for illegal bytes only: what is legal but bad manners is borne.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from agentctl_protocol.messages import Events, ResultMessage, Text
from agentctl_protocol.records import Illegal, Record, VerdictRecord
from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Containment, Reason, Result
from agentctl_supervisor import Supervisor
from agentctl_supervisor.client import Client
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import (
    AGENTS,
    BAD_SPEAKERS,
    Hostile,
    RollCall,
    agent_environment,
    alive,
    wait_until_gone,
)
from agentctl_testkit.clock import Stopwatch
from agentctl_testkit.faults import Stage, staged

LIES: Final = tuple(agent for agent in BAD_SPEAKERS if agent.name == "lying_frames")
FLOODS: Final = (
    "flood_with_asks",
    "flood_with_beats",
    "flood_with_batched_beats",
    "flood_with_events",
    "flood_with_big_events",
    "flood_with_finished_calls",
)
AT_ONCE: Final = (
    "flood_with_one_ask",
    "flood_with_batched_beats",
    "flood_with_events",
    "flood_with_finished_calls",
)
TINY_FRAMES: Final = 100_000

FLOOD_S: Final = 0.5
MOST_GROWTH: Final = 50 << 20
GRACE_S: Final = 0.1
STOP_WITHIN_S: Final = 1.0
"""Both graces are in it."""
NOISE: Final = 2
"""With one core free a stop in a flood takes 0.3 s; the rest is for a machine in use."""


def misuse(how: str) -> Hostile:
    """`tests/agents/channel_misuse.py` in one of its ways."""
    return Hostile("channel_misuse", 1, (how,))


@pytest.fixture
def state(tmp_path: Path) -> Home:
    return Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)


@pytest.fixture
def spec_of(marker: str, roll_call: RollCall) -> Callable[[Hostile], RunSpec]:
    env = agent_environment(marker, roll_call)

    def make(agent: Hostile) -> RunSpec:
        return RunSpec(argv=agent.argv(), cwd="/", env=env, grace_s=GRACE_S, term_grace_s=GRACE_S)

    return make


async def _finish(run: Run) -> tuple[Report, list[Record]]:
    with trio.fail_after(30):
        report = await run.wait()
    return report, [record async for record in run.events()]


def _bodies(log: list[Record], kind: type) -> list[Any]:
    return [record.body for record in log if isinstance(record.body, kind)]


@pytest.mark.parametrize("containment", list(Containment))
async def test_every_lie_ends_the_run_for_its_protocol(
    containment: Containment, state: Home, spec_of: Callable[[Hostile], RunSpec], marker: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Illegal bytes: result ``failed``, reason ``protocol``, and a sentence that says which."""
    monkeypatch.setenv("AGENTCTL_CONTAINMENT", containment)
    liars = [*LIES, *map(misuse, ("result_before_ready", "double_result", "words_after_bye"))]
    told: dict[str, Report] = {}
    async with Supervisor.open(state) as supervisor:
        for agent in liars:
            run = await supervisor.start(spec_of(agent))
            report, log = await _finish(run)
            told[str(agent)] = report
            assert (report.result, report.reason) == (Result.FAILED, Reason.PROTOCOL), agent
            assert report.processes.survivors == 0
            assert len(_bodies(log, Illegal)) == 1
            assert _bodies(log, Illegal)[0].detail
            assert wait_until_gone(run.id, within_s=0.5) == []
    assert alive(marker) == []
    # Both versions, so that one knows which side to bring up to date.
    assert "version 999" in told["lying_frames-version"].detail
    assert "version 1" in told["lying_frames-version"].detail
    assert "result" in told["channel_misuse-result_before_ready"].detail


async def test_the_first_of_two_results_is_kept(
    state: Home, spec_of: Callable[[Hostile], RunSpec]
) -> None:
    """What was legal before the illegal message is in the log, the rest is not."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec_of(misuse("double_result")))
        _, log = await _finish(run)
    (result,) = _bodies(log, ResultMessage)
    assert bytes(result.value)[-1] == 1


async def test_a_function_that_scribbles_on_its_channel_breaks_the_protocol(
    state: Home, marker: str, roll_call: RollCall
) -> None:
    """Inside the SDK's own process, too, bytes are judged by what they are."""
    spec = RunSpec(
        target=f"{AGENTS}/channel_misuse.py:scribble",
        cwd="/",
        env=agent_environment(marker, roll_call),
        grace_s=GRACE_S,
    )
    async with Supervisor.open(state) as supervisor:
        report, _ = await _finish(await supervisor.start(spec))
    assert (report.result, report.reason) == (Result.FAILED, Reason.PROTOCOL)
    assert report.value is None


async def test_half_a_frame_is_waited_for_and_counted(
    state: Home, spec_of: Callable[[Hostile], RunSpec], roll_call: RollCall
) -> None:
    """A frame that never ends is no breach: the run goes on, can be stopped, and says what tore."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec_of(Hostile("half_frame", 1)))
        await trio.to_thread.run_sync(roll_call.wait_for, 1)
        report = await run.stop()
        _, log = await _finish(run)
    assert (report.result, report.reason) == (Result.STOPPED, Reason.CLIENT)
    assert [event for body in _bodies(log, Events) for event in body.events] == [Text("kept")]
    assert report.log.torn_bytes > 0


async def test_an_exit_in_the_middle_of_a_frame_is_an_exit(
    state: Home, spec_of: Callable[[Hostile], RunSpec]
) -> None:
    """The exit code counts, and the torn bytes are counted."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec_of(Hostile("exit_mid_frame", 1)))
        report, _ = await _finish(run)
    assert (report.result, report.reason, report.exit_code) == (Result.FAILED, Reason.EXIT, 7)
    assert report.log.torn_bytes > 0


async def test_a_call_id_is_good_for_one_call(
    state: Home, spec_of: Callable[[Hostile], RunSpec]
) -> None:
    """Used again it is refused, and that is all."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec_of(misuse("reuse_a_call_id")))
        report, log = await _finish(run)
    assert report.result is Result.SUCCEEDED
    verdicts = [body.verdict for body in _bodies(log, VerdictRecord)]
    assert verdicts == ["granted", "refused"]
    assert [call.outcome for call in report.calls] == ["interrupted"]


async def test_the_end_of_a_call_that_was_not_granted_changes_nothing(
    state: Home, spec_of: Callable[[Hostile], RunSpec]
) -> None:
    """Neither an unknown call nor one that is over can be finished: no result is forged."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec_of(misuse("finish_unknown_calls")))
        report, _ = await _finish(run)
    assert report.result is Result.SUCCEEDED
    assert [(call.id, call.outcome, call.error) for call in report.calls] == [("c1", "ok", "")]


async def test_a_hundred_thousand_tiny_frames_are_all_heard(
    state: Home, spec_of: Callable[[Hostile], RunSpec]
) -> None:
    """One event a frame, as fast as they come: each is in the log, in order."""
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec_of(misuse("send_tiny_frames")))
        report, log = await _finish(run)
    assert report.result is Result.SUCCEEDED
    assert report.log.events == TINY_FRAMES
    firsts = [body.first for body in _bodies(log, Events)]
    assert firsts == list(range(1, TINY_FRAMES + 1))


# --- floods ---------------------------------------------------------------


@pytest.mark.parametrize("how", FLOODS)
def test_a_flood_is_bounded_and_can_be_stopped(how: str) -> None:
    """The supervisor's memory hardly grows, it answers a client, and the stop takes its graces."""
    with staged() as stage:
        supervisor = stage.embed(_flood(stage, how))
        stage.heard("up root")
        before = _resident(supervisor, "VmRSS")
        time.sleep(FLOOD_S)  # the flood is the experiment
        growth = _resident(supervisor, "VmHWM") - before
        (directory,) = stage.runs()

        since = Stopwatch()
        outcome = Client(stage.home.root).stop(directory.id)

        assert since.uncontended_s < STOP_WITHIN_S * NOISE
        assert outcome.report.result is Result.STOPPED
        # By the supervisor itself: it had not become deaf to its clients.
        assert outcome.report.ladder[0].step == "asked"
        assert alive(stage.marker) == []
        assert growth < MOST_GROWTH


def test_floods_do_not_keep_each_other_from_being_stopped() -> None:
    """Four floods in one supervisor: it still stops each of them."""
    with staged() as stage:
        supervisor = stage.embed(*(_flood(stage, how) for how in AT_ONCE))
        stage.roll_call.wait_for(len(AT_ONCE))
        before = _resident(supervisor, "VmRSS")
        client = Client(stage.home.root)
        for directory in stage.runs():
            since = Stopwatch()
            outcome = client.stop(directory.id)
            assert since.uncontended_s < 2 * STOP_WITHIN_S * NOISE
            assert outcome.report.result is Result.STOPPED
        assert _resident(supervisor, "VmHWM") - before < 2 * MOST_GROWTH
        assert alive(stage.marker) == []


def _flood(stage: Stage, how: str) -> RunSpec:
    return RunSpec(
        argv=misuse(how).argv(),
        cwd="/",
        env=agent_environment(stage.marker, stage.roll_call),
        grace_s=GRACE_S,
        term_grace_s=GRACE_S,
    )


def _resident(pid: int, key: str) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"{pid} has no {key}: it is a zombie")


async def test_a_flood_meets_its_output_limit(
    state: Home, marker: str, roll_call: RollCall
) -> None:
    """Events count as output: a run that says more than it may ends with reason ``output``."""
    spec = RunSpec(
        argv=misuse("flood_with_big_events").argv(),
        cwd="/",
        env=agent_environment(marker, roll_call),
        grace_s=GRACE_S,
        term_grace_s=GRACE_S,
        output_bytes=8 << 20,
    )
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec)
        report, _ = await _finish(run)
    assert (report.result, report.reason) == (Result.LIMIT, Reason.OUTPUT)
    assert sys.executable in report.command
