"""A supervisor that sweeps up after dead keepers leaves those of its other runs alone."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, signal, sys, trio
from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor import RunSpec, Supervisor

async def main():
    async with Supervisor.open(subreaper=True) as supervisor:
        spec = RunSpec(argv=("sleep", "60"), sandbox=Sandbox.NONE)
        struck = [await supervisor.start(spec) for _ in range(2)]
        for run in struck:
            await run.wait_started()
        spawner = supervisor._spawners.pid
        dead = os.pidfd_open(spawner)
        os.kill(spawner, signal.SIGSTOP)  # or it would sweep
        for pid in (*(run.keepers.warden_pid for run in struck), spawner):
            os.kill(pid, signal.SIGKILL)
        # A run that is handed to a spawner in its last moment is lost, and that is another story.
        await trio.lowlevel.wait_readable(dead)
        after = await supervisor.start(RunSpec(argv=("true",), sandbox=Sandbox.BASIC))
        told = await after.wait()
        print(told.result)
        print(told.detail, file=sys.stderr)
        for run in struck:
            report = await run.wait()
            print(report.result, report.processes.survivors)

trio.run(main)
"""


def test_a_run_started_during_a_sweep_is_not_swept(tmp_path: Path) -> None:
    """Spawner and wardens killed: the orphans are ended one sweep at a time, the new run is not."""
    # A program of its own: it takes, and kills, whatever its descendants orphan.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"AGENTCTL_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["succeeded", "lost 0", "lost 0"], done.stderr
