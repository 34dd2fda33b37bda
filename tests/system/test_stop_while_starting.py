"""A run can be stopped at every step of its start, and then its agent's first line never runs."""

import dataclasses
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Containment, Reason, Result, Rung
from agentctl_supervisor import Supervisor
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import (
    AGENTS,
    AgentctlHome,
    Hostile,
    RollCall,
    agent_environment,
    alive,
    wait_until_gone,
)
from agentctl_testkit.clock import Stopwatch
from agentctl_testkit.faults import SPAWN_STEPS

DELAY_S: Final = 0.1
TERM_GRACE_S: Final = 0.2
PROMPT_S: Final = TERM_GRACE_S + 1.7
"""How long a stop may take in the middle of a start, besides the delay: the grace that an agent
which is up already and ignores SIGTERM gets, and a busy machine; one that hears gets 5 s."""

_BESIDE_THE_AGENT: Final = ("spawner:forked", "warden:cloned", "warden:contained", "init:forked")
"""Here a keeper waits while another one, or the agent's process, goes on with the start."""


@dataclasses.dataclass(frozen=True)
class Start:
    """Starts that are struck at ``step``: what is started, a function or not, and how it ends."""

    containment: Containment
    step: str
    struck: tuple[tuple[bool, str], ...]

    def __str__(self) -> str:
        return f"{self.containment}-{self.step}"


def _starts() -> Iterator[Start]:
    for containment, steps in SPAWN_STEPS.items():
        for number, step in enumerate(steps):
            if step == "init:reaped":  # the end of a run, not its start
                continue
            # A program is spawned by init, without a process of ours in between.
            by_init = containment is Containment.PID_NAMESPACE and step.startswith("agent:")
            both = ((True, "stop"),) if by_init else ((False, "stop"), (True, "stop"))
            killed = by_init or number % 2 == 0
            yield Start(containment, step, (*both, (killed, "kill")))


@pytest.fixture
def state(tmp_path: Path) -> Home:
    return Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)


def _spec(marker: str, roll_call: RollCall, *, function: bool, **env: str) -> RunSpec:
    what: dict[str, Any] = (
        {"target": f"{AGENTS}/first_line.py:main"}
        if function
        else {"argv": Hostile("runaway", 5).argv()}
    )
    env = {**agent_environment(marker, roll_call), **env}
    return RunSpec(**what, cwd="/", env=env, term_grace_s=TERM_GRACE_S)


async def _hear(roll_call: RollCall, line: str, times: int = 1) -> None:
    with trio.fail_after(20):
        while True:
            roll_call.hear()
            if roll_call.lines.count(line) >= times:
                return
            await trio.lowlevel.wait_readable(roll_call)


def _assert_stopped(report: Report, run_id: str) -> None:
    assert (report.result, report.reason) == (Result.STOPPED, Reason.CLIENT)
    assert report.processes.survivors == 0
    assert report.ladder
    # The tree was empty when the report was made; its keepers leave with it.
    assert wait_until_gone(run_id, within_s=0.5) == []


@pytest.mark.parametrize("start", list(_starts()), ids=str)
async def test_a_stop_at_any_step_of_a_start_is_obeyed(
    start: Start,
    state: Home,
    marker: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """`stop` and `kill` return at once, outcome ``stopped``, with nothing left.

    What had not begun never does.
    """
    monkeypatch.setenv("AGENTCTL_CONTAINMENT", start.containment)
    delay_s = DELAY_S
    while True:
        monkeypatch.setenv("AGENTCTL_FAILPOINTS", f"{start.step}={delay_s}")
        with RollCall(tmp_path) as roll_call, roll_call.path.open("wb"):
            monkeypatch.setenv("AGENTCTL_FAILPOINTS_FIFO", str(roll_call.path))
            await _strike(start, state, marker, roll_call, delay_s)
            roll_call.hear()
            begun = "first line" in roll_call.lines or roll_call.up()
            if not begun or start.step in _BESIDE_THE_AGENT:
                return
        # A busy machine asked for the stop after the delay, or the stop was not obeyed.
        delay_s *= 4
        assert delay_s < 10


async def _strike(
    start: Start, state: Home, marker: str, roll_call: RollCall, delay_s: float
) -> None:
    """Stop each run of *start* at its step."""
    async with Supervisor.open(state) as supervisor:
        for times, (function, verb) in enumerate(start.struck, 1):
            run = await supervisor.start(_spec(marker, roll_call, function=function))
            if start.step != "spawner:started":  # passed once, for all runs
                await _hear(roll_call, f"at {start.step}", times)
            since = Stopwatch()
            with trio.fail_after(20):
                report = await (run.stop() if verb == "stop" else run.kill())

            assert since.uncontended_s < PROMPT_S + delay_s
            _assert_stopped(report, run.id)
            if verb == "kill":
                assert [step.step for step in report.ladder] == [Rung.SIGKILL]
    assert alive(marker) == []


@pytest.mark.parametrize("containment", list(Containment))
async def test_leaving_the_block_during_a_start_leaves_nothing(
    containment: Containment, state: Home, marker: str, roll_call: RollCall,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Neither the end of the block nor a cancelled scope waits for a start to come about."""
    monkeypatch.setenv("AGENTCTL_CONTAINMENT", containment)
    runs = []
    for cancelled in (False, True):
        with trio.CancelScope() as scope:
            async with Supervisor.open(state) as supervisor:
                for function in (False, True):
                    spec = _spec(marker, roll_call, function=function)
                    runs.append(await supervisor.start(spec))
                if cancelled:
                    scope.cancel()
                    await trio.lowlevel.checkpoint()

    assert len(runs) == 4
    for run in runs:
        said = (run.report.result, run.report.reason)
        assert said == (Result.STOPPED, Reason.SUPERVISOR_EXIT)
    assert alive(marker, *(run.id for run in runs)) == []


@pytest.mark.parametrize("function", ["main", "main_async"])
async def test_a_stop_during_the_import_is_honoured(
    function: str, state: Home, marker: str, roll_call: RollCall
) -> None:
    """A cancel that comes before the agent's first line is heard, and the line never runs."""
    spec = RunSpec(
        target=f"{AGENTS}/first_line.py:{function}",
        cwd="/",
        env={**agent_environment(marker, roll_call), "AGENTCTL_TEST_IMPORT_S": "60"},
    )
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(spec)
        await _hear(roll_call, "importing")
        since = Stopwatch()
        report = await run.stop(grace_s=10)

        assert since.uncontended_s < 1
        _assert_stopped(report, run.id)
        assert [(step.step, step.answered) for step in report.ladder] == [(Rung.ASKED, "yes")]
    roll_call.hear()
    assert "first line" not in roll_call.lines


@pytest.mark.parametrize("containment", list(Containment))
async def test_a_stop_at_random_instants_of_a_start_is_obeyed(
    containment: Containment, state: Home, marker: str, roll_call: RollCall,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Ten starts, each stopped up to 40 ms later: always ``stopped``, never anything left."""
    monkeypatch.setenv("AGENTCTL_CONTAINMENT", containment)
    instants = random.Random("agentctl")
    async with Supervisor.open(state) as supervisor:
        for number in range(10):
            run = await supervisor.start(_spec(marker, roll_call, function=number % 2 == 0))
            await trio.sleep(instants.uniform(0, 0.04))  # the instant is what is tried
            with trio.fail_after(10):
                report = await run.stop(grace_s=1, term_grace_s=0.1)
            _assert_stopped(report, run.id)
            assert alive(marker) == []


@pytest.mark.parametrize(
    ("step", "signalled", "code"),
    [
        ("spawner:started", signal.SIGINT, 130),
        ("warden:decoded", signal.SIGINT, 130),
        ("spawner:started", signal.SIGTERM, 143),
        ("init:started", signal.SIGINT, 130),
    ],
)
def test_a_signal_during_a_start_stops_it(
    step: str,
    signalled: signal.Signals,
    code: int,
    home: AgentctlHome,
    marker: str,
    tmp_path: Path,
) -> None:
    """``agentctl run`` ends with the signal's code and leaves nothing, however early it comes."""
    with RollCall(tmp_path) as roll_call, roll_call.path.open("wb"):
        command = home.start(
            "run",
            "--",
            *Hostile("runaway", 5).argv(),
            environment={
                **agent_environment(marker, roll_call),
                "AGENTCTL_FAILPOINTS": f"{step}={DELAY_S}",
                "AGENTCTL_FAILPOINTS_FIFO": str(roll_call.path),
            },
        )
        roll_call.wait_until(lambda: f"at {step}" in roll_call.lines, step)
        command.send_signal(signalled)

        _, err = command.communicate(timeout=10)
        assert command.returncode == code, err
        assert alive(marker) == []
