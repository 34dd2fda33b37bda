"""A sweep empties a tree that is held together by nothing but its parent links."""

import ctypes
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agentctl_protocol.vocabulary import Containment
from agentctl_testkit import (
    HOSTILE_TREES,
    Hostile,
    RollCall,
    agent_environment,
    alive,
    wait_until_gone,
)
from agentctl_testkit.spawner import RUN_UID, SpawnerStandIn

_PR_SET_CHILD_SUBREAPER = 36
SWEEP = (sys.executable, "-I", "-m", "agentctl_child.keepers.sweep")


@pytest.fixture
def subreaper() -> Iterator[None]:
    """Orphans of this process come to it."""
    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def reap_until_end_of(
    sweep: "subprocess.Popen[bytes]", swept_root: "subprocess.Popen[bytes]"
) -> None:
    """Reap the orphans that come to us while *sweep* works, as a subreaper has to."""
    while True:
        ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        if ended.si_pid == sweep.pid:
            return
        if ended.si_pid == swept_root.pid:
            swept_root.wait()
        else:
            os.waitpid(ended.si_pid, 0)


@pytest.mark.usefixtures("subreaper")
@pytest.mark.parametrize("tree", HOSTILE_TREES, ids=str)
def test_sweeps_every_tree(tree: Hostile, marker: str, roll_call: RollCall) -> None:
    """As a program below a subreaper, it ends all of it and keeps who is to be kept."""
    env = agent_environment(marker, roll_call)
    kept = subprocess.Popen(["sleep", "1000"], env=env)
    swept_root = subprocess.Popen(tree.argv(), env=env)
    try:
        roll_call.wait_for(tree.members)
        sweep = subprocess.Popen(
            [*SWEEP, str(os.getpid()), str(kept.pid)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        reap_until_end_of(sweep, swept_root)
        out, err = sweep.communicate()
        assert (sweep.returncode, json.loads(out)) == (0, [])
        assert err == b""
        assert not roll_call.anyone_left
        assert [found.pid for found in alive(marker)] == [kept.pid]
    finally:
        kept.kill()
        kept.wait()
        swept_root.kill()
        swept_root.wait()


@pytest.mark.usefixtures("subreaper")
def test_sweeps_after_spawner_and_warden_died_together(marker: str, roll_call: RollCall) -> None:
    """The one gap of the fallback, closed by a subreaper above both."""
    runaway = HOSTILE_TREES[0]
    with SpawnerStandIn() as spawner:
        run = spawner.launch(
            *runaway.argv(),
            env=agent_environment(marker, roll_call),
            containment=Containment.SUBREAPER,
        )
        run.contained()
        roll_call.wait_for(runaway.members)
        spawner.process.send_signal(signal.SIGSTOP)
        signal.pidfd_send_signal(run.pidfds[0], signal.SIGKILL)
        spawner.process.kill()
        spawner.process.wait()
        assert len(alive(marker)) == runaway.members
        swept = subprocess.run([*SWEEP, str(os.getpid())], capture_output=True, check=False)
        assert swept.returncode == 0
        assert wait_until_gone(marker, run.run, within_s=0.5) == []


# An ordinary user's bomb takes what RLIMIT_NPROC lets all processes of that user be together: a
# run of another test in the fallback could not fork meanwhile.
@pytest.mark.alone
@pytest.mark.usefixtures("subreaper")
def test_ends_a_bomb_within_its_process_limit(marker: str) -> None:
    """A fork bomb in the sealed fallback is emptied while it forks."""
    bomb = "import os\nwhile True:\n try: os.fork()\n except OSError: pass\n"
    with SpawnerStandIn() as spawner:
        run = spawner.launch(
            sys.executable,
            "-I",
            "-S",
            "-c",
            bomb,
            env={"AGENTCTL_TEST_MARKER": marker},
            containment=Containment.SUBREAPER,
            deadline_s=0.4,
            host_uid=RUN_UID if os.geteuid() == 0 else None,
        )
        end = run.exited(timeout_s=30)
        assert end.deadline
        assert (end.survivors, alive(marker)) == ((), [])


@pytest.mark.parametrize("arguments", [(), ("x",), ("1", "-2")])
def test_a_wrong_command_line_is_usage(arguments: tuple[str, ...]) -> None:
    """One line of usage and status 2, and nothing is killed."""
    swept = subprocess.run([*SWEEP, *arguments], capture_output=True, check=False)
    assert swept.returncode == 2
    assert swept.stderr.startswith(b"usage: ")
