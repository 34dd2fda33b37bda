"""What a report counts, and what is not lost on the way to an agent."""

import textwrap
from pathlib import Path

import pytest

from agentctl_protocol.report import Processes
from agentctl_protocol.vocabulary import Containment, Result
from agentctl_supervisor import RunSpec, Supervisor
from agentctl_supervisor.store.run_directory import Home


@pytest.mark.parametrize("containment", list(Containment))
async def test_what_an_agent_leaves_behind_is_counted_and_killed(
    tmp_path: Path, containment: Containment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that ends by itself and leaves two processes: three were seen, two killed."""
    monkeypatch.setenv("AGENTCTL_CONTAINMENT", containment)
    home = Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)
    async with Supervisor.open(home) as supervisor:
        script = "sleep 60 & sleep 60 & exit 3"
        run = await supervisor.start(RunSpec(argv=["sh", "-c", script]))
        report = await run.wait()
    assert (report.result, report.exit_code) == (Result.FAILED, 3)
    assert report.processes == Processes(seen=3, killed=2, survivors=0)


async def test_input_that_is_sent_at_once_reaches_the_agent(tmp_path: Path) -> None:
    """Neither an item nor the end of input is lost because the agent has not said hello yet."""
    agent = tmp_path / "adds.py"
    agent.write_text(
        textwrap.dedent(
            """
            from agentctl_child import run

            def main():
                return sum(run.inputs())
            """
        )
    )
    home = Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)
    async with Supervisor.open(home) as supervisor:
        run = await supervisor.start(RunSpec(target=f"{agent}:main"))
        await run.send_input(20)
        await run.send_input(22)
        run.end_input()
        report = await run.wait()
        assert report.value == 42
        ended = await supervisor.start(RunSpec(target=f"{agent}:main"))
        ended.end_input()
        assert (await ended.wait()).value == 0
