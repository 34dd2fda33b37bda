"""Whatever a tree does, its warden can end it, and says truthfully that it did."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentctl_protocol.spawning import Contained, Deadline, Exited, Kill, Refused, Terminate
from agentctl_protocol.vocabulary import Containment
from agentctl_testkit import (
    HOSTILE_TREES,
    Hostile,
    RollCall,
    agent_environment,
    alive,
    wait_until_gone,
)
from agentctl_testkit.capabilities import Capability, cgroup2_mount, needs
from agentctl_testkit.clock import Stopwatch
from agentctl_testkit.spawner import LaunchedRun, SpawnerStandIn

CONTAINMENTS = [
    pytest.param(Containment.PID_NAMESPACE, marks=needs(Capability.PID_NAMESPACE)),
    Containment.SUBREAPER,
]
both = pytest.mark.parametrize("containment", CONTAINMENTS)


def _by_order(run: LaunchedRun) -> None:
    run.order(Kill())


def _by_signal(run: LaunchedRun) -> None:
    signal.pidfd_send_signal(run.pidfds[0], signal.SIGUSR2)


def _by_timer(run: LaunchedRun) -> None:
    run.order(Deadline(after_s=0.0))


WAYS: list[Callable[[LaunchedRun], None]] = [_by_order, _by_signal, _by_timer]


@pytest.fixture(scope="module")
def spawner() -> Iterator[SpawnerStandIn]:
    with SpawnerStandIn() as started:
        yield started


@pytest.mark.parametrize("tree", HOSTILE_TREES, ids=str)
@both
def test_kill_ends_every_tree(
    spawner: SpawnerStandIn,
    containment: Containment,
    tree: Hostile,
    marker: str,
    roll_call: RollCall,
) -> None:
    """When Exited comes, nobody of the run is alive, whatever it was."""
    run = spawner.launch(
        *tree.argv(), env=agent_environment(marker, roll_call), containment=containment
    )
    run.contained()
    roll_call.wait_for(1 if _needs_ptrace(tree, containment) else tree.members)
    run.order(Kill())
    end = run.exited()
    assert not roll_call.anyone_left
    assert alive(marker) == []
    assert (end.survivors, end.blocked_by) == ((), None)
    assert wait_until_gone(run.run, within_s=1.0) == []


def _needs_ptrace(tree: Hostile, containment: Containment) -> bool:
    # The seal of the fallback forbids ptrace: that tree never gets complete there.
    return tree.name == "ptracer" and containment is Containment.SUBREAPER


@pytest.mark.parametrize("way", WAYS)
@both
def test_every_way_to_ask_kills(
    spawner: SpawnerStandIn,
    containment: Containment,
    way: Callable[[LaunchedRun], None],
    marker: str,
    roll_call: RollCall,
) -> None:
    """A packet, a signal to the warden and its own timer all end the run at once."""
    runaway = HOSTILE_TREES[0]
    run = spawner.launch(
        *runaway.argv(), env=agent_environment(marker, roll_call), containment=containment
    )
    run.contained()
    roll_call.wait_for(runaway.members)
    way(run)
    end = run.exited()
    assert end.deadline is (way is _by_timer)
    assert not roll_call.anyone_left


@both
def test_a_closed_status_socket_kills(
    spawner: SpawnerStandIn, containment: Containment, marker: str, roll_call: RollCall
) -> None:
    """A supervisor that lets go of a run wants it ended."""
    runaway = HOSTILE_TREES[0]
    run = spawner.launch(
        *runaway.argv(), env=agent_environment(marker, roll_call), containment=containment
    )
    roll_call.wait_for(runaway.members)
    run.status.close()
    assert wait_until_gone(marker, run.run, within_s=2.0) == []


@both
def test_terminate_reaches_everybody(
    spawner: SpawnerStandIn, containment: Containment, marker: str, roll_call: RollCall
) -> None:
    """SIGTERM comes to each process, in another session and daemonised too."""
    # The root must not obey: its exit would end the others at once.
    six = Hostile("six_roles", 6, ("stubborn",))
    run = spawner.launch(
        *six.argv(), env=agent_environment(marker, roll_call), containment=containment
    )
    roll_call.wait_for(six.members)
    run.order(Terminate())
    roll_call.wait_until(
        lambda: sum("SIGTERM" in got for got in roll_call.signals().values()) >= six.members,
        "SIGTERM at every member",
    )
    run.order(Kill())
    run.exited()


@both
def test_terminate_wakes_the_stopped(
    spawner: SpawnerStandIn, containment: Containment, marker: str
) -> None:
    """A stopped process gets its SIGTERM as well: SIGCONT follows."""
    run = spawner.launch(
        "sh",
        "-c",
        "sh -c 'trap \"exit 0\" TERM; kill -STOP $$; exit 9' & wait $!; exit 4",
        env={"AGENTCTL_TEST_MARKER": marker},
        containment=containment,
    )
    run.running()
    _wait_for_state(marker, "T")
    signal.pidfd_send_signal(run.pidfds[0], signal.SIGUSR1)
    end = run.exited()
    # The shell itself has no handler and dies of the same SIGTERM.
    assert (end.code, end.signal) in {(None, signal.SIGTERM), (4, None)}


def _wait_for_state(marker: str, state: str) -> None:
    end = time.monotonic() + 10
    while not any(found.state == state for found in alive(marker)):
        assert time.monotonic() < end
        os.sched_yield()


@pytest.mark.parametrize("order", [Kill(), Terminate()])
@pytest.mark.parametrize(
    ("containment", "step"),
    [
        *(
            pytest.param(Containment.PID_NAMESPACE, step, marks=needs(Capability.PID_NAMESPACE))
            for step in (
                "warden:decoded",
                "warden:contained",
                "init:started",
                "init:mounted",
                "init:confined",
                "init:forked",
            )
        ),
        *(
            (Containment.SUBREAPER, step)
            for step in (
                "warden:decoded",
                "warden:contained",
                "agent:descriptors",
                "agent:reported",
            )
        ),
    ],
)
def test_an_order_at_every_step_of_the_spawn(
    containment: Containment, step: str, order: Kill | Terminate, marker: str
) -> None:
    """A run can be stopped before its agent's first instruction, at any step."""
    with SpawnerStandIn(env={"AGENTCTL_FAILPOINTS": f"{step}=0.05"}) as spawner:
        run = spawner.launch(
            "sleep", "1000", env={"AGENTCTL_TEST_MARKER": marker}, containment=containment
        )
        run.order(order)
        if isinstance(order, Terminate):
            # May come before there is anybody to take it; the ladder's next rung follows.
            run.contained()
            with contextlib.suppress(BrokenPipeError):  # the first one may have ended it
                run.order(order)
                run.order(Kill())
        packets = run.drain()
        assert isinstance(packets[-1], Exited), packets
        assert alive(marker, run.run) == []


@both
def test_early_sigterm_is_not_lost(containment: Containment, marker: str) -> None:
    """A SIGTERM that reaches the agent's process before its program takes effect then."""
    step = "agent:reported=0.1" if containment is Containment.SUBREAPER else "init:forked=0.05"
    with SpawnerStandIn(env={"AGENTCTL_FAILPOINTS": step}) as spawner:
        run = spawner.launch(
            "sleep", "1000", env={"AGENTCTL_TEST_MARKER": marker}, containment=containment
        )
        run.contained()
        run.order(Terminate())
        assert run.exited().signal == signal.SIGTERM


# --- dead man's timer -------------------------------------------------------


@both
def test_dead_man_timer_of_the_warden(
    spawner: SpawnerStandIn, containment: Containment, marker: str, roll_call: RollCall
) -> None:
    """With nobody asking, the run is dead a slack after its deadline."""
    since = Stopwatch()
    runaway = HOSTILE_TREES[0]
    run = spawner.launch(
        *runaway.argv(),
        env=agent_environment(marker, roll_call),
        containment=containment,
        deadline_s=0.5,
    )
    end = run.exited()
    assert end.deadline
    assert since.elapsed_s >= 0.59
    assert since.uncontended_s < 1.5
    assert not alive(marker)


@needs(Capability.PID_NAMESPACE)
def test_dead_man_timer_of_init(marker: str) -> None:
    """With supervisor, spawner and warden all stopped, init ends the run by itself."""
    with SpawnerStandIn() as spawner:
        run = spawner.launch("sleep", "1000", env={"AGENTCTL_TEST_MARKER": marker}, deadline_s=0.4)
        run.contained()
        run.running()
        spawner.process.send_signal(signal.SIGSTOP)
        signal.pidfd_send_signal(run.pidfds[0], signal.SIGSTOP)
        assert wait_until_gone(marker, within_s=2.0) == []
        signal.pidfd_send_signal(run.pidfds[0], signal.SIGCONT)
        assert run.exited().deadline


@needs(Capability.PID_NAMESPACE)
def test_dead_man_timer_with_a_stopped_init(marker: str) -> None:
    """A stopped init does not save the run from its warden."""
    with SpawnerStandIn() as spawner:
        run = spawner.launch("sleep", "1000", env={"AGENTCTL_TEST_MARKER": marker}, deadline_s=0.3)
        run.contained()
        signal.pidfd_send_signal(run.pidfds[1], signal.SIGSTOP)
        assert run.exited().deadline


@both
def test_a_deadline_only_shortens(spawner: SpawnerStandIn, containment: Containment) -> None:
    """A later deadline does not lengthen an earlier one."""
    since = Stopwatch()
    run = spawner.launch("sleep", "1000", containment=containment, deadline_s=0.4)
    run.order(Deadline(after_s=100.0))
    assert run.exited().deadline
    assert since.uncontended_s < 2.0


@both
def test_a_deadline_may_be_years_away(spawner: SpawnerStandIn, containment: Containment) -> None:
    """Longer than poll(2) can wait, for the warden and for init: the run goes on, and ends."""
    ten_years_s = 3e8
    run = spawner.launch("sleep", "1000", containment=containment, deadline_s=ten_years_s)
    run.running()
    run.order(Deadline(after_s=ten_years_s))
    run.order(Terminate())
    exited = run.exited()
    assert (exited.signal, exited.deadline) == (signal.SIGTERM, False)


@needs(Capability.PID_NAMESPACE)
def test_a_run_that_ended_in_time_was_not_the_timers(spawner: SpawnerStandIn) -> None:
    """An agent's own exit before the deadline is its own."""
    assert not spawner.launch("/bin/true", deadline_s=30.0).exited().deadline


# --- truth ---------------------------------------------------------------


@needs(Capability.CGROUP2)
@both
def test_kills_a_cgroup_too(
    spawner: SpawnerStandIn, containment: Containment, marker: str, roll_call: RollCall
) -> None:
    """With a cgroup, everybody in it is dead when Exited comes."""
    mount = cgroup2_mount()
    assert mount is not None
    directory = mount / f"agentctl-stop-{os.getpid()}"
    directory.mkdir()
    try:
        cgroup = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        comet = HOSTILE_TREES[2]
        run = spawner.launch(
            *comet.argv(),
            env=agent_environment(marker, roll_call),
            containment=containment,
            cgroup=cgroup,
        )
        os.close(cgroup)
        roll_call.wait_for(comet.members)
        run.order(Kill())
        run.exited()
        assert "populated 0" in (directory / "cgroup.events").read_text()
    finally:
        directory.rmdir()


@needs(Capability.ROOT, Capability.PID_NAMESPACE)
def test_names_the_process_that_holds_up_the_end(spawner: SpawnerStandIn, marker: str) -> None:
    """A member whose tracer outside does not let it go is reported with that tracer."""
    run = spawner.launch("sleep", "1000", env={"AGENTCTL_TEST_MARKER": marker})
    contained = run.contained()
    run.running()
    (agent,) = [found for found in alive(marker) if found.pid != contained.root.pid]
    tracer = os.fork()
    if tracer == 0:
        _hold_up(agent.pid)
    try:
        _wait_for_tracer(agent.pid, tracer)
        run.order(Kill())
        end = run.exited()
        assert end.blocked_by == tracer
    finally:
        os.kill(tracer, signal.SIGKILL)
        os.waitpid(tracer, 0)
    assert wait_until_gone(marker, within_s=2.0) == []


def _hold_up(pid: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None)
    seize, exit_events = 0x4206, 0x40  # PTRACE_SEIZE, PTRACE_O_TRACEEXIT
    libc.ptrace(seize, ctypes.c_long(pid), None, ctypes.c_void_p(exit_events))
    while True:
        signal.pause()


def _wait_for_tracer(pid: int, tracer: int) -> None:
    end = time.monotonic() + 10
    while f"TracerPid:\t{tracer}\n" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < end
        os.sched_yield()


def test_a_refused_run_leaves_nobody(spawner: SpawnerStandIn) -> None:
    """When Refused comes, init and agent are gone already."""
    run = spawner.launch("no-such-program")
    first, last = run.drain()
    assert isinstance(first, Contained)
    assert isinstance(last, Refused)
    assert wait_until_gone(run.run, within_s=1.0) == []
