"""A run that closes the pipes that its supervisor writes to ends nobody but itself."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from agentctl_testkit import AGENTS

EMBEDDING = """
import signal, sys, threading, trio
from agentctl_protocol.spec import RunSpec
from agentctl_supervisor import Supervisor

signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as programs do that are used in `... | head`

async def main():
    async with Supervisor.open() as supervisor:
        run = await supervisor.start(RunSpec(
            argv=(sys.executable, "-B", sys.argv[1], "deaf"), cwd="/", stdin=True,
            grace_s=0.1, term_grace_s=0.1,
        ))
        while b"up" not in run.stdout:
            await trio.sleep(0.01)
        try:
            await run.stdin.send_all(b"x")
        except trio.BrokenResourceError:
            print("nobody reads it")
        report = await run.stop()
        print(report.result, *(step.step for step in report.ladder))

thread = threading.Thread(target=trio.run, args=(main,))
if sys.argv[2] == "thread":
    thread.start()
    thread.join()
else:
    trio.run(main)
print(signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL)
"""


@pytest.mark.parametrize("where", ["main", "thread"])
def test_a_program_with_the_default_action_of_sigpipe_lives(where: str, tmp_path: Path) -> None:
    """The cancel goes into a pipe that nobody reads; the action is as it was afterwards."""
    done = subprocess.run(
        [sys.executable, "-c", EMBEDDING, AGENTS / "pipe_misuse.py", where],
        env={"AGENTCTL_HOME": str(tmp_path / "home"), "AGENTCTL_SANDBOX": "basic"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != -signal.SIGPIPE
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "nobody reads it\nstopped asked sigterm\nTrue\n"
