"""Runs that say tens of thousands of things at once: their neighbours have their turns."""

import sys
from pathlib import Path

import pytest
import trio

from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Result, Sandbox, State
from agentctl_supervisor import Supervisor
from agentctl_supervisor.event_loop.turns import MAX_ITEMS
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AGENTS

ATTACKERS = 2
ROUNDS = 300
KINDS = ("ask", "same", "fin", "beat", "event", "events", "usage", "lists")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_flood_of_messages_leaves_its_neighbours_their_turns(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop goes round after a bounded number of records; a neighbour is stopped meanwhile."""
    home = Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)
    applied, apply = 0, Fold.apply

    def counted(self: Fold, record: object) -> None:
        nonlocal applied
        applied += 1
        apply(self, record)  # type: ignore[arg-type]

    monkeypatch.setattr(Fold, "apply", counted)
    command = (sys.executable, str(AGENTS / "batch_flooder.py"), kind)
    flood = RunSpec(argv=command, sandbox=Sandbox.BASIC, grace_s=0.1, term_grace_s=0.2)
    up = [trio.Event() for _ in range(ATTACKERS)]
    async with Supervisor.open(home) as supervisor:
        neighbour = await supervisor.start(
            RunSpec(argv=("/bin/sleep", "600"), sandbox=Sandbox.BASIC)
        )
        await neighbour.wait_started()
        floods = []
        for event in up:

            async def hear(_stream: str, _data: bytes, event: trio.Event = event) -> None:
                event.set()

            floods.append(await supervisor.start(flood, on_output=hear))
        with trio.fail_after(60):
            for event in up:
                await event.wait()
            most = 0
            for _ in range(ROUNDS):
                before = applied
                await trio.lowlevel.checkpoint()
                most = max(most, applied - before)
            report = await neighbour.stop()
            assert report.result is Result.STOPPED
            # An ask is two records; four turns, and the end of those of the round before.
            assert most <= 2 * 2 * 4 * MAX_ITEMS
            assert [run.report.state for run in floods] == [State.RUNNING] * ATTACKERS
            for run in floods:
                assert (await run.kill()).processes.survivors == 0
