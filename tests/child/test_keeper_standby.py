"""A place that is made before its run is known: it is a run's as any other, or leaves no trace."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentctl_protocol.spawning import (
    Contained,
    Exited,
    Kill,
    Refused,
    Running,
    Standing,
)
from agentctl_protocol.vocabulary import Containment, Network, Sandbox
from agentctl_testkit import alive, wait_until_gone
from agentctl_testkit_capabilities import Capability, cgroup2_mount, needs
from agentctl_testkit_spawner import SpawnerStandIn, strike
from agentctl_testkit_view import CALLERS, RUN_UID, Caller, in_order, system

pytestmark = needs(Capability.PID_NAMESPACE)


@pytest.fixture(scope="module")
def spawner() -> Iterator[SpawnerStandIn]:
    with SpawnerStandIn() as started:
        yield started


def test_a_run_begins_in_it(spawner: SpawnerStandIn) -> None:
    """It has the environment, the directory and the descriptors of the run, and no others."""
    place = spawner.stand_by()
    place.standing()
    script = "pwd; env -0 | tr '\\0' '\\n' | sort; ls -l /proc/self/fd | wc -l; exit 3"
    run = place.begin("sh", "-c", script, env={"A": "1"}, cwd="/usr")
    assert run.exited().code == 3
    assert [type(packet) for packet in run.packets] == [Contained, Standing, Running, Exited]
    lines = run.output_bytes().decode().splitlines()
    usual = spawner.launch("sh", "-c", script, env={"A": "1"}, cwd="/usr")
    usual.exited()
    expected = usual.output_bytes().decode().replace(usual.run, run.run).splitlines()
    assert lines == expected


def test_a_function_begins_in_it(spawner: SpawnerStandIn) -> None:
    """Init forks for it, as always; the channel is its own."""
    place = spawner.stand_by()
    place.standing()
    run = place.begin(target="os:getpid")
    run.running()
    run.channel.settimeout(20)
    assert b"hello" in run.channel.recv(4096)
    run.order(Kill())
    run.exited()


@pytest.mark.parametrize("name", CALLERS)
def test_it_has_the_layers_of_any_other(name: str) -> None:
    """At strict, read back from the kernel; and its files are the run's, and no others."""
    with Caller.open(name) as caller:
        fields: dict[str, Any] = {
            "sandbox": Sandbox.STRICT,
            "network": Network.NONE,
            "host_uid": RUN_UID if name == "root" else None,
            "view": in_order(system()),
        }
        usual = caller.spawner.launch("/bin/true", **fields)
        layers = usual.running().layers
        usual.exited()
        place = caller.spawner.stand_by(**fields)
        place.standing()
        run = place.begin("sh", "-c", "id -u; ls /")
        assert run.running().layers == layers
        assert run.exited().code == 0


def test_what_cannot_be_executed_is_refused_in_it(spawner: SpawnerStandIn) -> None:
    """In the same words; nothing is left."""
    place = spawner.stand_by()
    place.standing()
    run = place.begin("/no/such/program")
    refused = run.refused()
    assert refused.fault == "not_found"
    assert wait_until_gone(run.run, place.launch.run, within_s=10) == []


@pytest.mark.parametrize(
    ("fields", "number", "told"),
    [
        ({"sandbox": Sandbox.NONE}, None, "another place"),
        ({"containment": Containment.SUBREAPER}, None, "another place"),
        ({}, 3, "3 descriptors came, not 5"),
        ({"env": {"A=": "1"}}, None, "a variable"),
    ],
)
def test_a_run_for_another_place_is_refused(
    spawner: SpawnerStandIn, fields: dict[str, Any], number: int | None, told: str
) -> None:
    """What it is confined by was made of other words; nothing is left."""
    place = spawner.stand_by()
    place.standing()
    refused = place.begin("/bin/true", descriptors=number, **fields).refused()
    assert refused.fault == "system"
    assert told in refused.detail or "name of a variable" in refused.detail
    assert wait_until_gone(place.run.run, place.launch.run, within_s=10) == []


def test_a_second_run_does_not_begin_in_it(spawner: SpawnerStandIn, marker: str) -> None:
    """Its descriptors are closed, and the first one goes on."""
    place = spawner.stand_by()
    place.standing()
    env = {"AGENTCTL_TEST_MARKER": marker}
    run = place.begin("sleep", "1000", env=env)
    run.running()
    second = place.begin("sh", "-c", "exit 9", env=env)
    assert second.output_bytes() == b""  # nobody holds the pipe
    assert len(alive(marker)) == 1
    run.order(Kill())
    assert run.exited().code is None
    assert alive(marker) == []


def test_the_wardens_timer_counts_from_the_beginning(spawner: SpawnerStandIn) -> None:
    """A deadline comes with the run."""
    place = spawner.stand_by()
    place.standing()
    end = place.begin("sleep", "1000", deadline_s=0.3).exited()
    assert end.deadline


@pytest.mark.parametrize("how", ["order", "hang up"])
def test_one_that_is_not_wanted_any_more_leaves_nothing(spawner: SpawnerStandIn, how: str) -> None:
    """Neither a process nor a cgroup."""
    place = spawner.stand_by()
    place.standing()
    if how == "order":
        place.run.order(Kill())
        place.run.exited()
    else:
        place.run.status.close()
    assert wait_until_gone(place.launch.run, within_s=10) == []


@pytest.mark.parametrize("victim", ["supervisor", "spawner", "warden", "root"])
def test_it_dies_with_its_keepers(victim: str) -> None:
    """As a run does, though nobody may ever have known of it."""
    with subprocess.Popen(["sleep", "1000"]) as supervisor:
        with SpawnerStandIn(supervisor=supervisor.pid) as spawner:
            place = spawner.stand_by()
            place.standing()
            strike(victim, place.run, spawner, supervisor)
            assert wait_until_gone(place.launch.run, within_s=2) == []
        supervisor.kill()


@needs(Capability.ROOT, Capability.CGROUP2)
def test_its_cgroup_goes_with_it() -> None:
    """When the supervisor is dead: no record of a run names it."""
    mount = cgroup2_mount()
    assert mount is not None
    group = mount / f"agentctl-test-standby-{os.getpid()}"
    group.mkdir()
    try:
        with (
            subprocess.Popen(["sleep", "1000"]) as supervisor,
            SpawnerStandIn(supervisor=supervisor.pid) as spawner,
        ):
            fd = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
            place = spawner.stand_by(cgroup=fd)
            os.close(fd)
            place.standing()
            supervisor.kill()
            assert wait_until_gone(place.launch.run, within_s=5) == []
            assert not group.exists()
    finally:
        if group.exists():
            group.rmdir()


@needs(Capability.ROOT)
def test_it_does_not_outlive_a_change_of_what_is_mounted(tmp_path: Path) -> None:
    """What it shows may be another by then, or be kept busy by it."""
    with SpawnerStandIn(wrapper=("unshare", "--mount")) as spawner:
        place = spawner.stand_by()
        place.standing()
        enter = ("nsenter", "--mount", "--target", str(spawner.process.pid))
        subprocess.run([*enter, "mount", "-t", "tmpfs", "none", str(tmp_path)], check=True)
        assert isinstance(place.run.until(Exited), Exited)
        # A run that has begun has nothing to do with that.
        place = spawner.stand_by()
        place.standing()
        run = place.begin("sh", "-c", "read line; exit 4", stdin=(pipe := os.pipe())[0])
        run.running()
        subprocess.run([*enter, "umount", str(tmp_path)], check=True)
        os.close(pipe[1])
        os.close(pipe[0])
        assert run.exited().code == 4


def test_the_fallback_has_no_such_place(spawner: SpawnerStandIn) -> None:
    """The agent itself is the first process there."""
    place = spawner.stand_by(containment=Containment.SUBREAPER)
    refused = place.run.until(Refused)
    assert isinstance(refused, Refused)
    assert "stand by" in refused.detail


def test_its_title_is_the_runs_once_there_is_one(spawner: SpawnerStandIn) -> None:
    """Whoever looks for a run in ``ps`` finds its keepers."""
    place = spawner.stand_by()
    contained = place.standing()
    run = place.begin("sleep", "1000")
    run.running()
    for identity in (contained.warden, contained.root):
        line = Path(f"/proc/{identity.pid}/cmdline").read_bytes()
        assert run.run.encode() in line
    run.order(Kill())
    run.exited()
