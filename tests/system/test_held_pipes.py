"""A pipe has one lock: a run that holds that of its own holds up nobody but itself."""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trio

from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Result, Sandbox
from agentctl_supervisor import Supervisor
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AGENTS, MARKER_VARIABLE, alive, kill_all, new_marker
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.clock import Stopwatch

WITHIN_S: Final = 6.0
"""A bystander's whole life; the lock is held for 30 s."""
PATIENCE_S: Final = 90.0


@pytest.fixture
def marker() -> Iterator[str]:
    made = new_marker()
    yield made
    kill_all(made)


async def bystander(supervisor: Supervisor, marker: str) -> float:
    """Start a run and stop it; the seconds that it took."""
    watch = Stopwatch()
    run = await supervisor.start(
        RunSpec(argv=("sleep", "60"), env={MARKER_VARIABLE: marker}, cwd="/", grace_s=0.1)
    )
    await run.wait_started()
    assert (await run.stop()).result is Result.STOPPED
    return watch.uncontended_s


async def write_to(run: Run) -> None:
    assert run.stdin is not None
    with contextlib.suppress(trio.BrokenResourceError):
        while True:
            await run.stdin.send_all(b"x")


@needs(Capability.HELD_PAGES)
@pytest.mark.parametrize("pipe", ["stdin", "stdout", "stderr", "channel", "answers"])
async def test_a_lock_that_is_held_holds_up_nobody_else(
    pipe: str, marker: str, tmp_path: Path
) -> None:
    """A bystander starts and is stopped, and the run itself can be ended meanwhile."""
    home = Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)
    os.mkfifo(held := tmp_path / "held")
    spec = RunSpec(
        argv=(sys.executable, str(AGENTS / "held_pipe.py"), pipe, str(held)),
        env={"PYTHONPATH": str(AGENTS), MARKER_VARIABLE: marker},
        sandbox=Sandbox.BASIC,
        stdin=pipe == "stdin",
        cwd="/",
    )
    with trio.fail_after(PATIENCE_S):
        async with Supervisor.open(home=home) as supervisor, trio.open_nursery() as nursery:
            run = await supervisor.start(spec)
            if pipe == "stdin":
                nursery.start_soon(write_to, run)
            await trio.to_thread.run_sync(held.read_bytes, abandon_on_cancel=True)

            assert await bystander(supervisor, marker) < WITHIN_S
            assert not run.finished, "nothing went on before the lock was let go"

            # Closing takes the lock, too.
            watch = Stopwatch()
            run.close_output("stdout")
            report = await run.kill()
            assert watch.uncontended_s < WITHIN_S
            assert report.result is Result.STOPPED
            assert report.processes.survivors == 0
            nursery.cancel_scope.cancel()
    assert alive(marker) == []
