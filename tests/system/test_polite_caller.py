"""An agent that is about to make a call when it is stopped is not taken for one that ignores it."""

import os
import time
from contextlib import aclosing
from pathlib import Path

import pytest

from agentctl_protocol.messages import CallFinished, Events
from agentctl_protocol.records import VerdictRecord
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Rung
from agentctl_supervisor import Supervisor
from agentctl_supervisor.stop.ladder_run import Climb
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AGENTS, MARKER_VARIABLE, alive

SPEC = RunSpec(target=f"{AGENTS / 'polite_caller.py'}:main")


async def test_an_ask_that_crosses_the_stop_costs_no_grace(
    tmp_path: Path, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent asks while its processes are counted, before the request is sent: it obeys."""
    look = Climb.look

    def slow_look(climb: Climb) -> object:
        time.sleep(0.1)  # five of its calls would fit in here
        return look(climb)

    spec = RunSpec(target=SPEC.target, env={**os.environ, MARKER_VARIABLE: marker})
    home = Home.open({"AGENTCTL_HOME": str(tmp_path)}, create=True)
    async with Supervisor.open(home) as supervisor:
        run = await supervisor.start(spec)
        async with aclosing(run.events()) as events:
            async for record in events:
                if isinstance(record.body, Events):
                    break
        monkeypatch.setattr(Climb, "look", slow_look)
        report = await run.stop()
        log = [record.body async for record in run.events()]

    refused = [
        body for body in log if isinstance(body, VerdictRecord) and body.verdict != "granted"
    ]
    assert len(refused) == 1, "this test has not hit the moment that it is about"
    assert [(step.step, step.answered) for step in report.ladder] == [(Rung.ASKED, "yes")]
    assert report.checkpoint == sum(isinstance(body, CallFinished) for body in log)
    assert alive(marker) == []
