"""A run that takes all of what the kernel counts for others, too, harms nobody but itself.

`agentctl_protocol.shared_counters` is the table.  Where using a counter up would harm the tests
beside these, the kernel answers the supervisor alone as if it were (seccomp), or its limit is
lowered for these processes.
"""

import contextlib
import json
import os
import resource
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from agentctl_child.sandbox import task_table
from agentctl_testkit import AGENTS, alive, command_of
from agentctl_testkit.capabilities import Capability, memory_groups, needs
from agentctl_testkit.ordinary import Installation, installed, interpreter

PROGRAM: Final = Path(__file__).parents[1] / "support" / "agentctl_testkit" / "beside_program.py"
PATIENCE_S: Final = 180


class Place:
    """Where somebody runs agentctl, and a workspace.  ``uid``: nobody else's, where we are root."""

    def __init__(self, directory: Path, installation: Installation | None = None) -> None:
        self.directory = directory
        self.identity: dict[str, Any] = {}
        self.python, self.agents = sys.executable, AGENTS
        if installation is not None:
            uid = 1_800_000_000 + secrets.randbelow(100_000_000)
            self.identity = {"user": uid, "group": uid, "extra_groups": []}
            self.python, self.agents = installation.python, installation.agents
            os.chown(directory, uid, uid)
        self.workspace = directory / "workspace"
        self.workspace.mkdir()
        if installation is not None:
            os.chown(self.workspace, uid, uid)
        shutil.copy(self.agents / "take_all.py", self.workspace)

    def beside(
        self,
        *around: str,
        taker: str = "",
        limits: dict[int, tuple[int, int]] | None = None,
        **order: Any,
    ) -> dict[str, Any]:
        """What the program saw, started with *limits*, by *around* in front of its command."""
        order["workspace"] = str(self.workspace)
        if taker:
            python = interpreter() if os.geteuid() == 0 else sys.executable
            order["taker"] = [python, str(self.workspace / "take_all.py"), taker]

        def lower() -> None:
            for kind, both in (limits or {}).items():
                resource.setrlimit(kind, both)

        done = subprocess.run(
            [*around, self.python, "-c", PROGRAM.read_text(), json.dumps(order)],
            cwd="/",
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            preexec_fn=lower,
            check=False,
            **self.identity,
        )
        assert done.returncode == 0, done.stderr
        seen: dict[str, Any] = json.loads(done.stdout)
        return seen

    def agentctl(
        self, *arguments: str, group: Path | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """The command, in a control *group* if one is given."""

        def join() -> None:
            if group is not None:
                (group / "cgroup.procs").write_text(str(os.getpid()))

        return subprocess.run(
            [command_of(self.python), *arguments],
            cwd=self.workspace,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            preexec_fn=join,
            check=False,
            **self.identity,
        )

    def _environment(self) -> dict[str, str]:
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith("AGENTCTL_")},
            "HOME": str(self.directory),
            "AGENTCTL_HOME": str(self.directory / "home"),
        }


@contextlib.contextmanager
def _directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="agentctl-counters-", dir="/tmp"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture
def here() -> Iterator[Place]:
    """For whoever runs the tests."""
    with _directory() as directory:
        yield Place(directory)
        assert not alive(str(directory))


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation | None]:
    if os.geteuid() != 0 or not Capability.ORDINARY_PYTHON.here:
        yield None
        return
    with installed() as made:
        yield made


@pytest.fixture
def user(installation: Installation | None) -> Iterator[Place]:
    """For an ordinary user, whom nobody shares these counters with if we are root."""
    with _directory() as directory:
        yield Place(directory, installation)
        assert not alive(str(directory))


#: Of root's tests too, these are an ordinary user's.
as_user: Final = needs(
    Capability.USER_NAMESPACE, *([Capability.ORDINARY_PYTHON] if os.geteuid() == 0 else [])
)
IN_A_PID_NAMESPACE: Final = ("unshare", "-pfm", "--mount-proc", "--kill-child")
TASKS: Final = 400
SUCCEEDED: Final = "succeeded: exit code 0"
STOPPED: Final = "stopped, 0 left"


def test_without_epoll_watches_runs_start_and_stop(here: Place) -> None:
    """By poll(2): a new run, a stop of ours, and one of a client that connects only now."""
    seen = here.beside(starve="epoll")
    assert seen["new"] == SUCCEEDED
    assert seen["bystander"] == "running"
    assert seen["stopped"] == STOPPED
    assert "stopped" in seen["stopped by a client"]
    assert "0 survive" not in seen["stopped by a client"]


def test_without_threads_runs_start_and_stop(here: Place) -> None:
    """Neither a stop, nor storing a report durably, starts a thread or forks."""
    seen = here.beside(starve="threads")
    assert seen["new"] == SUCCEEDED
    assert seen["bystander"] == "running"
    assert seen["stopped"] == STOPPED


def test_without_descriptors_a_new_run_is_refused_and_the_others_stop(here: Place) -> None:
    """Before the last one is gone: a stop, and the client that asks for it, need some."""
    seen = here.beside(starve="descriptors")
    assert seen["new"].startswith("refused: ")
    assert "open files of a process (ulimit -n)" in seen["new"]
    assert seen["bystander"] == "running"
    assert seen["stopped"] == STOPPED
    assert "stopped" in seen["stopped by a client"]
    assert seen["afterwards"] == SUCCEEDED


@needs(Capability.ROOT, Capability.OWN_PID_MAX)
def test_in_a_full_table_a_new_run_is_refused_and_the_others_stop(here: Place) -> None:
    """Not by a run's doing: the refusal names the counter, and stops find everything there."""
    seen = here.beside(*IN_A_PID_NAMESPACE, starve="tasks", pid_max=TASKS)
    assert seen["new"].startswith("refused: ")
    assert f"kernel.pid_max is {TASKS}" in seen["new"]
    assert seen["bystander"] == "running"
    assert seen["stopped"] == STOPPED
    assert seen["afterwards"] == SUCCEEDED


@needs(Capability.ROOT, Capability.OWN_PID_MAX)
def test_a_bomb_leaves_a_reserve_of_the_table(here: Place) -> None:
    """Enough for a stop from a fresh shell, as root, whose limits the kernel does not keep."""
    seen = here.beside(*IN_A_PID_NAMESPACE, taker="processes", pid_max=TASKS)
    assert "Resource temporarily unavailable" in seen["taken"]
    assert seen["outside"].startswith("took 1")
    assert seen["bystander"] == "running"
    assert seen["stopped"] == STOPPED
    assert "stopped" in seen["stopped by a client"]


@as_user
@pytest.mark.parametrize(
    ("taker", "limits"),
    [
        ("descriptors in flight", {resource.RLIMIT_NOFILE: (1024, 1024)}),
        ("inotify instances", {}),
        ("queued signals", {resource.RLIMIT_SIGPENDING: (200, 200)}),
        ("pipe pages", {}),
    ],
)
def test_what_is_counted_for_a_user_is_left_to_others(
    user: Place, taker: str, limits: dict[int, tuple[int, int]]
) -> None:
    """A run takes what it may of it; programs of the same user get more, and new runs start."""
    seen = user.beside(taker=taker, limits=limits)
    assert seen["taken"].startswith("took "), seen["taken"]
    assert seen["outside"].startswith("took ")
    if taker != "pipe pages":  # of which a run may take all
        assert not seen["outside"].startswith("took 0")
    assert seen["new"] == SUCCEEDED
    assert seen["bystander"] == "running"
    assert seen["stopped"] == STOPPED
    assert "stopped" in seen["stopped by a client"]


@as_user
def test_a_bomb_of_a_users_leaves_that_user_processes(user: Place) -> None:
    """All runs of a user together stay below its limit: a shell of the user's can still fork."""
    limit = 600 + task_table.tasks_of(user.identity.get("user", os.getuid()))
    seen = user.beside(taker="processes", limits={resource.RLIMIT_NPROC: (limit, limit)})
    assert "Resource temporarily unavailable" in seen["taken"]
    assert seen["outside"].startswith("took 1")
    assert seen["stopped"] == STOPPED
    assert "stopped" in seen["stopped by a client"]


@pytest.mark.parametrize("level", ["strict", "standard", "basic"])
def test_a_run_is_killed_first_and_cannot_change_that(here: Place, level: str) -> None:
    """When memory is used up: oom_score_adj is the highest, and stays."""
    script = "cat /proc/self/oom_score_adj; echo 0 >/proc/self/oom_score_adj; "
    done = here.agentctl("run", "-q", "--sandbox", level, "--", "/bin/sh", "-c", script * 2)
    assert done.stdout == "1000\n1000\n", done.stderr


@needs(Capability.ROOT, Capability.MEMORY_CGROUP)
def test_out_of_memory_the_run_is_killed_and_told_so(here: Place) -> None:
    """As in a container: not the supervisor, nor a keeper; and the report has the cause."""
    found = memory_groups()
    assert found is not None
    above, limit = found
    group = above / here.directory.name
    group.mkdir()
    try:
        (group / limit).write_text(str(200 << 20))
        taker = str(here.workspace / "take_all.py")
        python = interpreter() or sys.executable
        done = here.agentctl("run", "--name", "hog", "--", python, taker, "memory", group=group)
        assert done.returncode == 137, done.stderr
        shown = json.loads(here.agentctl("show", "hog", "-o", "json").stdout)
        assert shown["result"] == "failed"
        assert "for want of memory" in shown["detail"]
        assert shown["processes"]["survivors"] == 0
    finally:
        group.rmdir()
