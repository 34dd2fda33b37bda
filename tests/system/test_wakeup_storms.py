"""A run whose processes wake up again and again keeps nobody from ending it (docs/adr/0011).

The bounds here are for a busy machine; ``tests/benchmarks/bench_wakeups.py`` prints the figures.
"""

import json
import subprocess
import time
from pathlib import Path
from typing import Any, Final

import pytest

from agentctl_testkit import AGENTS, AgentctlHome
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.cli import freeze

pytestmark = [needs(Capability.BUILD_TOOLS, Capability.PID_NAMESPACE), pytest.mark.alone]

STRICT: Final = ("--sandbox", "strict")
N: Final = "500"
KILL_S: Final = 6.0
SESSIONS_KILL_S: Final = 20.0
"""Each session has the share of a whole program there: a fresh one is one among hundreds."""
OVERSHOOT_S: Final = 2.0


@pytest.fixture(scope="session")
def wakeups(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The storm, compiled where a run can read it."""
    program = tmp_path_factory.mktemp("wakeups") / "wakeups"
    subprocess.run(["cc", "-O1", "-o", program, AGENTS / "wakeups.c"], check=True)
    for directory in (program.parent, program.parent.parent):
        directory.chmod(0o755)
    return program


@pytest.fixture
def workspace(tmp_path: Path, wakeups: Path) -> Path:
    """A workspace with the program in it."""
    directory = tmp_path / "workspace"
    directory.mkdir()
    (directory / "wakeups").write_bytes(wakeups.read_bytes())
    (directory / "wakeups").chmod(0o755)
    return directory


def _start(home: AgentctlHome, workspace: Path, *arguments: str) -> None:
    """Start a storm as run ``s``; return when it has begun."""
    begun = ("run", "-q", "-d", *STRICT, "--name", "s", "--time", "60s", "--", "./wakeups")
    assert home.run(*begun, *arguments, cwd=workspace).code == 0
    follow = home.start("logs", "-f", "s")
    assert follow.stdout is not None
    assert follow.stdout.readline() == b"storm\n"
    follow.kill()
    follow.communicate()


def _ended(home: AgentctlHome, *command: str) -> tuple[float, dict[str, Any]]:
    began = time.monotonic()
    done = home.run(*command, "-o", "json", "s")
    took_s = time.monotonic() - began
    (row,) = json.loads(done.stdout)["runs"]
    assert (done.code, row["gone"]) == (0, True)
    return took_s, row["report"]


@pytest.mark.parametrize("kind", ["usleep", "timerfd", "pipe"])
def test_a_kill_comes_through(home: AgentctlHome, workspace: Path, kind: str) -> None:
    """A kill from a fresh shell is over soon, and says what it does not know of the number."""
    _start(home, workspace, kind, N)
    took_s, report = _ended(home, "kill")
    assert took_s < KILL_S
    assert report["processes"]["survivors"] == 0
    assert report["processes"]["seen"] > 0


def test_a_kill_comes_through_sessions(home: AgentctlHome, workspace: Path) -> None:
    """Also where the kernel schedules each session as a group of its own."""
    _start(home, workspace, "timerfd", N, "setsid")
    took_s, _ = _ended(home, "kill")
    assert took_s < SESSIONS_KILL_S


def test_a_stop_comes_through_past_a_frozen_supervisor(home: AgentctlHome, workspace: Path) -> None:
    """Where the client does it all by itself."""
    supervisor = home.start(
        *("run", *STRICT, "--name", "s", "--time", "60s", "--", "./wakeups", "timerfd", N),
        cwd=workspace,
    )
    assert supervisor.stdout is not None
    assert supervisor.stdout.readline() == b"storm\n"
    freeze(supervisor)
    try:
        took_s, _ = _ended(home, "stop", "--term-grace", "200ms")
    finally:
        supervisor.kill()
        supervisor.communicate()
    assert took_s < KILL_S + 1.0


@pytest.mark.parametrize("kind", ["itimer", "signal"])
def test_the_time_limit_holds(home: AgentctlHome, workspace: Path, kind: str) -> None:
    """The end is at most the graces later."""
    graces = ("--grace", "100ms", "--term-grace", "100ms")
    done = home.run(
        *("run", *STRICT, "-o", "json", "--time", "2s", *graces, "--", "./wakeups", kind, N),
        cwd=workspace,
    )
    report = json.loads(done.stdout)
    assert report["reason"] == "time"
    assert report["duration_s"] < 2.0 + 0.2 + OVERSHOOT_S
    assert report["processes"]["survivors"] == 0


def test_a_run_cannot_rise(home: AgentctlHome, workspace: Path) -> None:
    """It is below its keepers for good: neither the class nor the timer slack can be undone."""
    program = (
        "import ctypes, os\n"
        "assert os.sched_getscheduler(0) == os.SCHED_IDLE\n"
        "for policy in (os.SCHED_OTHER, os.SCHED_BATCH):\n"
        "    try: os.sched_setscheduler(0, policy, os.sched_param(0))\n"
        "    except PermissionError: print('refused')\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.prctl(29, 1), libc.prctl(30) >= 1000000)\n"
    )
    done = home.run("run", *STRICT, "--", "python3", "-c", program, cwd=workspace)
    assert done.stdout == b"refused\nrefused\n-1 True\n", done.stderr
