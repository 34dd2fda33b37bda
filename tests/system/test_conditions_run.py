"""Termination conditions of real runs: what fires ends the run, and says so."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from agentctl_protocol.report import Report
from agentctl_protocol.vocabulary import Reason, Result
from agentctl_supervisor import RunSpec, Supervisor
from agentctl_supervisor.client import Client
from agentctl_supervisor.conditions import FunctionalTermination, MaxMessageTermination
from agentctl_supervisor.errors import NotWaitingError
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AgentctlHome

AGENT = """
import time
from agentctl_child import run

def main():
    for number in range(run.input or 10_000):
        run.emit_message(f"message {number}", source="critic" if number % 2 else "writer")
        with run.tool_call("step", number):
            pass
        time.sleep(0.005)
    time.sleep(60)
"""


@pytest.fixture
async def supervisor(home: AgentctlHome) -> AsyncIterator[Supervisor]:
    async with Supervisor.open(Home.open({"AGENTCTL_HOME": str(home.root)}, create=True)) as opened:
        yield opened


@pytest.fixture
def agent(tmp_path: Path) -> str:
    path = tmp_path / "chatty.py"
    path.write_text(AGENT)
    return f"{path}:main"


async def ended(supervisor: Supervisor, agent: str, condition: object) -> Report:
    run = await supervisor.start(RunSpec(target=agent, stop_when=condition))
    with trio.fail_after(20):
        return await run.wait()


@pytest.mark.parametrize(
    ("condition", "fired"),
    [
        ('text("message 3")', ["Text 'message 3' mentioned"]),
        ("max_messages(4)", ["Maximum number of messages 4 reached, current message count: 4"]),
        ('source("critic")', ["'critic' answered"]),
        ('tool("step")', ["Function 'step' was executed."]),
        ('time("200ms")', ["Timeout of 0.2 seconds reached"]),
        ({"type": "max_messages", "max_messages": 4}, None),
    ],
)
async def test_a_condition_that_is_met_ends_the_run(
    supervisor: Supervisor, agent: str, condition: object, fired: list[str] | None
) -> None:
    """Result ``terminated``, reason ``condition``; what fired is in the report, and when."""
    report = await ended(supervisor, agent, condition)
    assert (report.result, report.reason) == (Result.TERMINATED, Reason.CONDITION)
    assert report.actor is not None
    assert report.actor.kind == "condition"
    if fired is not None:
        assert [met.sentence for met in report.conditions] == fired
        assert report.detail.startswith(fired[0])
    assert all(0 <= met.at_s < 20 for met in report.conditions)


async def test_all_that_fired_is_reported(supervisor: Supervisor, agent: str) -> None:
    """An ``and`` ends the run with its last part, and names both."""
    report = await ended(supervisor, agent, 'source("critic") & max_messages(6)')
    assert {met.condition for met in report.conditions} == {
        'source("critic")',
        "max_messages(6)",
    }


async def test_an_agent_that_ignores_the_end_is_ended(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    """A condition is judged outside of the agent, and enforced as every stop is."""
    agent = tmp_path / "stubborn.py"
    agent.write_text(
        "import signal, time\nfrom agentctl_child import RunCancelled, run\n\n\n"
        "def main():\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    told = False\n"
        "    while True:\n"
        "        try:\n"
        "            if not told:\n"
        "                told = True\n"
        "                run.emit_message('enough')\n"
        "            time.sleep(60)\n"
        "        except RunCancelled:\n            pass\n"
    )
    spec = RunSpec(
        target=f"{agent}:main", stop_when="text_message()", grace_s=0.2, term_grace_s=0.2
    )
    report = await (await supervisor.start(spec)).wait()
    assert report.result is Result.TERMINATED
    assert [step.step for step in report.ladder] == ["asked", "sigterm", "sigkill"]


async def test_a_function_is_asked_and_ends_the_run(supervisor: Supervisor, agent: str) -> None:
    """On a thread: the supervisor goes on meanwhile."""
    condition = FunctionalTermination(lambda events: "message 5" in repr(events))
    run = await supervisor.start(
        RunSpec(target=agent), stop_when=condition | MaxMessageTermination(5000)
    )
    with trio.fail_after(20):
        report = await run.wait()
    assert report.result is Result.TERMINATED
    assert report.conditions[0].sentence == "Functional termination condition met"


async def test_a_function_that_fails_ends_the_run_and_says_so(
    supervisor: Supervisor, agent: str
) -> None:
    """A condition that cannot be judged is not silently left out."""

    def broken(_: object) -> bool:
        raise ValueError("no idea")

    run = await supervisor.start(RunSpec(target=agent), stop_when=FunctionalTermination(broken))
    with trio.fail_after(20):
        report = await run.wait()
    assert report.result is Result.TERMINATED
    assert "ValueError: no idea" in report.detail


async def test_external_is_fired_by_a_signal(supervisor: Supervisor, agent: str) -> None:
    """Once; a run without such a condition, and one that is over, say so."""
    client = Client(supervisor.home.root)
    run = await supervisor.start(RunSpec(target=agent, stop_when="external()"))
    await run.wait_started()
    assert await trio.to_thread.run_sync(client.signal, run.id) == "signalled"
    with trio.fail_after(20):
        report = await run.wait()
    assert report.result is Result.TERMINATED
    with pytest.raises(NotWaitingError, match="is over"):
        await trio.to_thread.run_sync(client.signal, run.id)
    other = await supervisor.start(RunSpec(target=agent))
    with pytest.raises(NotWaitingError, match="no external"):
        await trio.to_thread.run_sync(client.signal, other.id)
    await other.kill()


def test_the_option_and_its_errors(home: AgentctlHome, agent: str) -> None:
    """Exit code 0 for a run that was terminated; a wrong condition is shown with its place."""
    done = home.run("run", "-q", "-o", "json", "--stop-when", "max_messages(2)", agent)
    assert done.code == 0
    assert json.loads(done.out)["result"] == "terminated"
    wrong = home.run("run", "--stop-when", 'text("a") | max_mesages(2)', agent)
    assert wrong.code == 2
    assert "max_mesages" in wrong.err
    assert "^" in wrong.err
    assert "max_messages" in wrong.err.splitlines()[-1]
