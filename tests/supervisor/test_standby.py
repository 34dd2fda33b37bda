"""Places that stand by for runs: when one is used, and when it must not be."""

import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from agentctl_protocol.records import ContainedRecord
from agentctl_protocol.report import Report
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Result, Sandbox
from agentctl_supervisor import Supervisor
from agentctl_supervisor.run import Run
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import alive, wait_until_gone
from agentctl_testkit_capabilities import Capability, needs

pytestmark = needs(Capability.PID_NAMESPACE)


@pytest.fixture
def state(tmp_path: Path) -> Home:
    return Home.open({"AGENTCTL_HOME": str(tmp_path / "home")}, create=True)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path.resolve()


@pytest.fixture
async def supervisor(state: Home) -> AsyncIterator[Supervisor]:
    async with Supervisor.open(state, standbys=1) as supervisor:
        yield supervisor


def _spec(directory: Path, script: str = "true", **fields: Any) -> RunSpec:
    given: dict[str, Any] = {
        "sandbox": Sandbox.STRICT,
        "cwd": str(directory),
        "workspace": str(directory),
        "env": {"PATH": os.defpath, **fields.pop("env", {})},
    }
    return RunSpec(argv=("/bin/sh", "-c", script), **{**given, **fields})


async def _done(supervisor: Supervisor, spec: RunSpec) -> tuple[Run, Report]:
    run = await supervisor.start(spec)
    with trio.fail_after(30):
        report = await run.wait(durable=True)
    assert report.result is Result.SUCCEEDED, report
    return run, report


async def _warmed_up(supervisor: Supervisor, spec: RunSpec) -> set[int]:
    """The wardens of the places that stand by after a run of *spec*."""
    await _done(supervisor, spec)
    with trio.fail_after(30):
        await supervisor.standbys.wait_for_one()
    return supervisor.standbys.wardens()


async def test_the_next_run_like_it_begins_in_one(supervisor: Supervisor, workspace: Path) -> None:
    """With its own command, environment, descriptors and id; what it left is not there."""
    first, before = await _done(supervisor, _spec(workspace, "echo x > /tmp/left; id -u"))
    await supervisor.standbys.wait_for_one()
    wardens = supervisor.standbys.wardens()
    script = (
        'cat; echo "$OWN $AGENTCTL_RUN_ID" | tee made; test ! -e /tmp/left; echo err >&2; exit 0'
    )
    environment = {"OWN": "value"}
    run = await supervisor.start(_spec(workspace, script, env=environment, stdin=True, time_s=60))
    assert run.stdin is not None
    await run.stdin.send_all(b"given ")
    await run.stdin.aclose()
    report = await run.wait(durable=True)
    assert report.result is Result.SUCCEEDED
    assert run.stdout == f"given value {run.id}\n".encode()
    assert run.stderr == b"err\n"
    assert (workspace / "made").read_text() == f"value {run.id}\n"
    assert _warden(run) in wardens
    assert report.layers == before.layers
    assert report.workspace.changed == ("./", "made")
    assert report.processes.survivors == 0
    assert first.id != run.id


def _warden(run: Run) -> int:
    log = LogReader(run.directory.path, run.id)
    (contained,) = [record.body for record in log if isinstance(record.body, ContainedRecord)]
    return contained.warden.pid


@pytest.mark.parametrize("level", [Sandbox.BASIC, Sandbox.STRICT])
async def test_a_stop_reaches_a_run_in_one(
    supervisor: Supervisor, workspace: Path, level: Sandbox, marker: str
) -> None:
    """All of it is gone, as ever."""
    fields: dict[str, Any] = {"sandbox": level}
    if level is Sandbox.BASIC:
        fields["workspace"] = None
    wardens = await _warmed_up(supervisor, _spec(workspace, **fields))
    env = {"AGENTCTL_TEST_MARKER": marker}
    script = "trap '' TERM; (setsid sleep 1000 &); echo up; while :; do sleep 60; done"
    up = trio.Event()

    async def hear(_stream: str, _data: bytes) -> None:
        up.set()

    spec = _spec(workspace, script, env=env, term_grace_s=0.1, **fields)
    run = await supervisor.start(spec, on_output=hear)
    await up.wait()
    assert _warden(run) in wardens
    report = await run.stop()
    assert (report.result, report.processes.survivors) == (Result.STOPPED, 0)
    assert alive(marker) == []


async def test_what_was_exchanged_meanwhile_is_seen_as_it_is(
    supervisor: Supervisor, workspace: Path, tmp_path: Path
) -> None:
    """A place that shows the old file is not used, though nothing was asked for anew."""
    shown = tmp_path / "shown"
    shown.write_text("old")
    spec = _spec(workspace, f"cat {shown}", ro=(str(shown),))
    wardens = await _warmed_up(supervisor, spec)
    (tmp_path / "new").write_text("new")
    (tmp_path / "new").rename(shown)
    run, _ = await _done(supervisor, spec)
    assert run.stdout == b"new"
    assert _warden(run) not in wardens


async def test_what_came_to_be_protected_is(supervisor: Supervisor, workspace: Path) -> None:
    """The decision is made for each run, and a place of another one is not used."""
    spec = _spec(workspace, "echo bad > .bashrc || echo refused")
    wardens = await _warmed_up(supervisor, _spec(workspace))
    (workspace / ".bashrc").write_text("good")
    run, _ = await _done(supervisor, spec)
    assert (run.stdout, (workspace / ".bashrc").read_text()) == (b"refused\n", "good")
    assert _warden(run) not in wardens


async def test_another_directory_has_none(
    supervisor: Supervisor, workspace: Path, tmp_path: Path
) -> None:
    """Nor has another level, and a fresh workspace is each run's own."""
    wardens = await _warmed_up(supervisor, _spec(workspace))
    other = tmp_path / "other"
    other.mkdir()
    run, _ = await _done(supervisor, _spec(other, "touch here"))
    assert (_warden(run) in wardens, (other / "here").exists()) == (False, True)


async def test_nothing_is_left_of_what_was_not_used(state: Home, workspace: Path) -> None:
    """Neither a process nor a cgroup nor a uid."""
    async with Supervisor.open(state, standbys=1) as supervisor:
        await _warmed_up(supervisor, _spec(workspace))
        assert supervisor.standbys.wardens() != set()
        (place,) = supervisor.standbys.all()
        name, cgroup = place.launch.run, place.keepers.cgroup
        assert alive(name) != []
    assert alive(name) == []
    assert cgroup is None or not cgroup.path.exists()


async def test_one_that_has_died_is_not_used(supervisor: Supervisor, workspace: Path) -> None:
    """Nobody waits for it, and the next run is as any other."""
    (pid,) = await _warmed_up(supervisor, _spec(workspace))
    (place,) = supervisor.standbys.all()
    os.kill(pid, signal.SIGKILL)
    assert wait_until_gone(place.launch.run, within_s=10) == []
    run, _ = await _done(supervisor, _spec(workspace))
    assert _warden(run) != pid


async def test_a_stop_before_it_began_leaves_nothing(
    supervisor: Supervisor, workspace: Path, marker: str
) -> None:
    """The place that was to be its own goes, too."""
    await _warmed_up(supervisor, _spec(workspace))
    (place,) = supervisor.standbys.all()
    env = {"AGENTCTL_TEST_MARKER": marker}
    run = await supervisor.start(_spec(workspace, "sleep 1000", env=env))
    report = await run.kill()
    assert report.result is Result.STOPPED
    assert alive(marker) == []
    assert wait_until_gone(place.launch.run, within_s=10) == []


async def test_there_are_none_unless_they_are_asked_for(state: Home, workspace: Path) -> None:
    """They cost two processes each."""
    async with Supervisor.open(state) as supervisor:
        await _done(supervisor, _spec(workspace))
        await trio.testing.wait_all_tasks_blocked(0.1)
        assert supervisor.standbys.all() == []
