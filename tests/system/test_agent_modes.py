"""Agents of every kind under a real supervisor: they work, and end when they are asked to."""

from contextlib import aclosing
from pathlib import Path

import trio

from agentctl_protocol.messages import Events
from agentctl_protocol.vocabulary import Result
from agentctl_supervisor import RunSpec, Supervisor
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AGENTS

#: What ``main`` of each gives when it is asked for three.
POLITE = {
    "polite_sync.py": {"done": [1, 2, 3]},
    "polite_asyncio.py": {"squares": [0, 1, 4]},
    "polite_trio.py": {"squares": [0, 1, 4]},
    "polite_generator.py": {"done": [1, 2, 3]},
    "polite_async_generator.py": None,
}


async def test_agents_of_every_kind_work_and_can_be_stopped(tmp_path: Path) -> None:
    """Each does its work side by side with the others, and no stop gets past the first rung."""
    home = Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)

    async def check(supervisor: Supervisor, file: str, value: object) -> None:
        worker = await supervisor.start(RunSpec(target=f"{AGENTS / file}:main", input=3))
        report = await worker.wait()
        assert (report.result, report.value) == (Result.SUCCEEDED, value), file
        sleeper = await supervisor.start(RunSpec(target=f"{AGENTS / file}:sleep"))
        await reported(sleeper)
        stopped = await sleeper.stop()
        assert stopped.result == Result.STOPPED, file
        assert [step.step for step in stopped.ladder] == ["asked"], file
        assert stopped.processes.survivors == 0, file

    async with Supervisor.open(home) as supervisor, trio.open_nursery() as nursery:
        for file, value in POLITE.items():
            nursery.start_soon(check, supervisor, file, value)


async def reported(run: Run) -> None:
    """Return once the agent has reported anything."""
    async with aclosing(run.events()) as records:
        async for record in records:
            if isinstance(record.body, Events):
                return
