"""No run outlives its supervisor, its spawner, its warden or its init, whenever they die."""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from agentctl_protocol.vocabulary import Containment
from agentctl_supervisor.processes import process_tree
from agentctl_testkit import HOSTILE_TREES, RollCall, agent_environment, alive, wait_until_gone
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.spawner import LaunchedRun, SpawnerStandIn

CONTAINMENTS = [
    pytest.param(Containment.PID_NAMESPACE, marks=needs(Capability.PID_NAMESPACE)),
    Containment.SUBREAPER,
]
both = pytest.mark.parametrize("containment", CONTAINMENTS)
VICTIMS = ["supervisor", "spawner", "warden", "root"]
WARDEN_STEPS = [
    "spawner:forked",
    "warden:forked",
    "warden:decoded",
    "warden:cloned",
    "warden:contained",
]
INIT_STEPS = ["init:started", "init:mounted", "init:confined", "init:forked"]
AGENT_STEPS = ["agent:descriptors", "agent:confined", "agent:reported"]
RANDOM_ROUNDS = int(os.environ.get("AGENTCTL_TEST_ROUNDS", "10"))


@pytest.fixture
def supervisor() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose death is the supervisor's; we keep all sockets open, as a fork would."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def strike(
    victim: str,
    run: LaunchedRun,
    spawner: SpawnerStandIn,
    supervisor: subprocess.Popen[bytes],
) -> None:
    """SIGKILL one of them."""
    match victim:
        case "supervisor":
            supervisor.kill()
        case "spawner":
            spawner.process.kill()
        case _:
            run.contained()
            pidfd = run.pidfds[0 if victim == "warden" else 1]
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)


@pytest.mark.parametrize("victim", VICTIMS)
@both
def test_a_whole_tree_dies_with_any_keeper(
    containment: Containment,
    victim: str,
    supervisor: subprocess.Popen[bytes],
    marker: str,
    roll_call: RollCall,
) -> None:
    """The runaway tree, all of it up, is gone within a second of a keeper's SIGKILL."""
    runaway = HOSTILE_TREES[0]
    with SpawnerStandIn(supervisor=supervisor.pid) as spawner:
        run = spawner.launch(
            *runaway.argv(), env=agent_environment(marker, roll_call), containment=containment
        )
        roll_call.wait_for(runaway.members)
        strike(victim, run, spawner, supervisor)
        assert wait_until_gone(marker, run.run, within_s=1.0) == []


def _steps() -> Iterator[object]:
    """Each step with the supervisor's death and another's; with all when asked to be thorough."""
    for containment, steps in (
        (CONTAINMENTS[0], (*WARDEN_STEPS, *INIT_STEPS)),
        (CONTAINMENTS[1], (*WARDEN_STEPS, *AGENT_STEPS)),
    ):
        for number, step in enumerate(steps):
            others = VICTIMS[1:] if RANDOM_ROUNDS > 10 else [VICTIMS[1 + number % 3]]
            for victim in ("supervisor", *others):
                marks = needs(Capability.PID_NAMESPACE) if containment is CONTAINMENTS[0] else ()
                kind = list(Containment)[CONTAINMENTS.index(containment)]
                yield pytest.param(kind, step, victim, marks=marks)


@pytest.mark.parametrize(("containment", "step", "victim"), list(_steps()))
def test_a_death_at_every_step_of_the_spawn(
    containment: Containment,
    step: str,
    victim: str,
    supervisor: subprocess.Popen[bytes],
    marker: str,
) -> None:
    """Whoever is killed while a run is being made, nothing of it is left."""
    delay = {"AGENTCTL_FAILPOINTS": f"{step}=0.04"}
    with SpawnerStandIn(env=delay, supervisor=supervisor.pid) as spawner:
        run = spawner.launch(
            "sleep", "1000", env={"AGENTCTL_TEST_MARKER": marker}, containment=containment
        )
        warden = _wait_until_forked(run, spawner)
        strike(victim, run, spawner, supervisor)
        # It has no title yet, and its agent no marker: until it is gone none is looked for.
        assert process_tree.wait_dead(warden, 10.0)
        assert wait_until_gone(marker, run.run, within_s=1.0) == []
        for pidfd in warden:
            os.close(pidfd)


def _wait_until_forked(run: LaunchedRun, spawner: SpawnerStandIn) -> list[int]:
    """Return a pidfd of the warden once it exists; none if it has come and gone."""
    children = f"/proc/{spawner.process.pid}/task/{spawner.process.pid}/children"
    end = time.monotonic() + 10
    while not run.packets and time.monotonic() < end:
        with open(children) as file:
            pids = file.read().split()
        if pids:
            who = process_tree.identity_of(int(pids[0]))
            pidfd = None if who is None else process_tree.open_pidfd(who)
            return [] if pidfd is None else [pidfd]
        os.sched_yield()
    return []


@pytest.mark.parametrize("number", range(RANDOM_ROUNDS))
@both
def test_a_death_at_a_random_instant(
    containment: Containment,
    number: int,
    supervisor: subprocess.Popen[bytes],
    marker: str,
    roll_call: RollCall,
) -> None:
    """The same for any tree, any victim and any instant."""
    chance = random.Random(f"{number} {os.getpid()}")
    tree, victim = chance.choice(HOSTILE_TREES), chance.choice(VICTIMS)
    with SpawnerStandIn(supervisor=supervisor.pid) as spawner:
        run = spawner.launch(
            *tree.argv(), env=agent_environment(marker, roll_call), containment=containment
        )
        # Not synchronisation: an instant that nothing marks.
        time.sleep(chance.uniform(0, 0.08))
        strike(victim, run, spawner, supervisor)
        left = wait_until_gone(marker, run.run, within_s=1.0)
        assert left == [], (tree, victim)


@both
def test_many_runs_die_with_their_supervisor(
    containment: Containment, supervisor: subprocess.Popen[bytes], marker: str
) -> None:
    """Twenty runs are gone within a second, and so is the spawner."""
    with SpawnerStandIn(supervisor=supervisor.pid) as spawner:
        runs = [
            spawner.launch(
                "sleep", "1000", env={"AGENTCTL_TEST_MARKER": marker}, containment=containment
            )
            for _ in range(20)
        ]
        for run in runs:
            run.running()
        supervisor.kill()
        assert wait_until_gone(marker, *(run.run for run in runs), within_s=1.0) == []
        spawner.process.wait(5)


@both
def test_one_warden_s_death_spares_the_others(containment: Containment, marker: str) -> None:
    """The sweep of a dead warden's tree touches no other run."""
    with SpawnerStandIn() as spawner:
        env = {"AGENTCTL_TEST_MARKER": marker}
        doomed = spawner.launch("sleep", "1000", env=env, containment=containment)
        spared = spawner.launch("sleep", "1000", env=env, containment=containment)
        doomed.contained()
        spared.running()
        signal.pidfd_send_signal(doomed.pidfds[0], signal.SIGKILL)
        assert wait_until_gone(doomed.run, within_s=1.0) == []
        assert alive(spared.run)
        assert spawner.launch("/bin/true", containment=containment).exited().code == 0


@both
def test_no_zombies_are_left(containment: Containment, marker: str) -> None:
    """The spawner reaps killed wardens and what they leave to it."""
    with SpawnerStandIn() as spawner:
        for _ in range(5):
            run = spawner.launch(
                "sh",
                "-c",
                "sleep 1000 & sleep 1000 & wait",
                env={"AGENTCTL_TEST_MARKER": marker},
                containment=containment,
            )
            run.contained()
            run.running()
            signal.pidfd_send_signal(run.pidfds[0], signal.SIGKILL)
            assert wait_until_gone(marker, run.run, within_s=1.0) == []
        # A later run's end proves that the spawner has been around its loop.
        spawner.launch("/bin/true", containment=containment).drain()
        children = f"/proc/{spawner.process.pid}/task/{spawner.process.pid}/children"
        end = time.monotonic() + 5
        while time.monotonic() < end:
            with open(children) as file:
                if not file.read():
                    return
        pytest.fail("the spawner has children left")
