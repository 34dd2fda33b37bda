"""Launching: many runs at once, and what the embedding program does meanwhile."""

import os
import resource
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
import trio.testing

from agentctl_protocol.spawning import Launch
from agentctl_protocol.spec import RunSpec, SpecError
from agentctl_protocol.vocabulary import Containment, Result, Sandbox
from agentctl_supervisor import Supervisor
from agentctl_supervisor.errors import SpawnError
from agentctl_supervisor.spawner.process import SpawnerProcess
from agentctl_supervisor.spawner.start import StartedSpawner
from agentctl_supervisor.store.run_directory import Home


@pytest.fixture
def state(tmp_path: Path) -> Home:
    return Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)


def _launch(number: int) -> Launch:
    return Launch(
        run=f"r-{number:08}", sandbox=Sandbox.BASIC, containment=Containment.PID_NAMESPACE,
        env={}, cwd=b"/",
    )  # fmt: skip


def _spawner(requests: socket.socket) -> SpawnerProcess:
    started: Any = SimpleNamespace(requests=requests, process=None, pidfd=-1)
    return SpawnerProcess(cast("StartedSpawner", started))


async def test_a_burst_of_launches_waits_for_a_spawner_that_is_behind() -> None:
    """However many runs begin at once, each launch is sent as soon as there is room for it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the kernel's least
        spawner = _spawner(ours)
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                for number in range(100):
                    nursery.start_soon(spawner.launch, _launch(number), [theirs.fileno()] * 5, None)
                await trio.testing.wait_all_tasks_blocked()
                for _ in range(100):
                    await trio.lowlevel.wait_readable(theirs)
                    _, fds, _, _ = socket.recv_fds(theirs, 1 << 16, 8)
                    assert len(fds) == 6
                    for fd in fds:
                        os.close(fd)
                    await trio.testing.wait_all_tasks_blocked()


async def test_a_launch_without_descriptors_left_is_a_spawn_error() -> None:
    """That run is refused; the others, which have theirs, go on."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        spawner = _spawner(ours)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            with pytest.raises(SpawnError, match="Too many open files"):
                await spawner.launch(_launch(1), [], None)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_run_has_the_environment_and_directory_of_its_start(
    state: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the embedding program changes before a spawner is ready changes nothing."""
    (first := tmp_path / "first").mkdir()
    monkeypatch.chdir(first)
    monkeypatch.setenv("WHICH", "first")
    async with Supervisor.open(state) as supervisor:
        run = await supervisor.start(RunSpec(argv=("/bin/sh", "-c", "echo $WHICH; pwd")))
        monkeypatch.chdir("/")
        monkeypatch.setenv("WHICH", "second")
        await run.wait()
        assert run.stdout.decode().split() == ["first", str(first)]


@pytest.mark.parametrize(
    "spec",
    [
        RunSpec(argv=("/bin/echo", "\ud800")),
        RunSpec(argv=("/bin/true",), cwd="/\ud800"),
        RunSpec(argv=("/bin/true",), env={"SECRET": "\ud800"}),
    ],
    ids=["argument", "directory", "environment"],
)
async def test_text_that_cannot_be_encoded_is_an_error_of_the_spec(
    spec: RunSpec, state: Home
) -> None:
    """Whoever starts it is told; neither the supervisor nor a trace of the run suffers."""
    async with Supervisor.open(state) as supervisor:
        with pytest.raises(SpecError, match="encoded"):
            await supervisor.start(spec)
        assert supervisor.live_runs() == []
        assert state.runs() == []


async def test_a_start_under_a_cancelled_scope_brings_up_one_spawner(
    state: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that cleans up after its cancellation still gets its run, and no storm of them."""
    started: list[SpawnerProcess] = []
    make = SpawnerProcess.__init__

    def counted(self: SpawnerProcess, *arguments: StartedSpawner | None) -> None:
        started.append(self)
        make(self, *arguments)

    monkeypatch.setattr(SpawnerProcess, "__init__", counted)
    with trio.CancelScope() as scope:
        async with Supervisor.open(state) as supervisor:
            run = await supervisor.start(RunSpec(argv=("/bin/true",)))
            scope.cancel()
            with trio.CancelScope(shield=True), trio.fail_after(10):
                assert (await run.wait()).result is Result.SUCCEEDED
    assert len(started) == 1


@pytest.mark.parametrize("left", range(4))
def test_a_spawner_without_descriptors_left_is_a_spawn_error(left: int) -> None:
    """However few there are, nothing stays open and no process is left."""
    before = sorted(os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    holders = [os.open(os.devnull, os.O_RDONLY) for _ in range(64)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(holders) + 1, hard))
    for fd in holders[:left]:
        os.close(fd)
    try:
        with pytest.raises(SpawnError, match="Too many open files"):
            StartedSpawner()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in holders[left:]:
            os.close(fd)
    assert sorted(os.listdir("/proc/self/fd")) == before
