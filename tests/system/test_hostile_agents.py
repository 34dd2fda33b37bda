"""The control of every experiment: what the hostile agents do where nothing contains them."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from agentctl_testkit import (
    BAD_SPEAKERS,
    HOSTILE_TREES,
    Hostile,
    RollCall,
    agent_environment,
    alive,
    kill_all,
    wait_until_gone,
)

TREES = [agent for agent in HOSTILE_TREES if agent.members > 1]
COMET = next(agent for agent in TREES if agent.name == "comet")


@contextlib.contextmanager
def uncontained(
    agent: Hostile, marker: str, roll_call: RollCall, *more: str
) -> Iterator["subprocess.Popen[bytes]"]:
    """*agent* as a plain child.  Whatever of it is left at the end is killed."""
    # A comet cannot be caught without containment: it is waited for instead.
    seconds = 4 if agent is COMET else 120
    with subprocess.Popen(
        agent.argv(*more),
        env=agent_environment(marker, roll_call, seconds),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as root:
        try:
            yield root
        finally:
            if agent is COMET:
                root.kill()
                assert roll_call.wait_until_gone(within_s=20)
            kill_all(marker)


@pytest.mark.parametrize("agent", HOSTILE_TREES, ids=str)
def test_the_whole_tree_comes_up(agent: Hostile, marker: str, roll_call: RollCall) -> None:
    """As many processes are alive at once as the catalogue says, and the scan sees them."""
    with uncontained(agent, marker, roll_call):
        roles = roll_call.wait_for(agent.members)

        assert "root" in roles
        if agent is not COMET:
            assert len(alive(marker)) >= agent.members


@pytest.mark.parametrize("agent", TREES, ids=str)
def test_without_containment_a_kill_leaves_survivors(
    agent: Hostile, marker: str, roll_call: RollCall
) -> None:
    """SIGKILL to the root alone leaves others of the tree alive: the corpus is hostile."""
    with uncontained(agent, marker, roll_call) as root:
        roll_call.wait_for(agent.members)

        root.kill()
        root.wait()

        assert roll_call.anyone_left


@pytest.mark.parametrize("agent", HOSTILE_TREES, ids=str)
def test_told_to_leave_the_root_exits_by_itself(
    agent: Hostile, marker: str, roll_call: RollCall
) -> None:
    """With ``--leave`` the root exits with 7 once its tree is up; the others stay."""
    with uncontained(agent, marker, roll_call, "--leave") as root:
        code = root.wait(20)

        assert code == 7
        assert roll_call.anyone_left == (agent.members > 1)
        assert len(roll_call.up()) == agent.members


def test_a_tree_that_nobody_stops_ends_by_itself(marker: str, roll_call: RollCall) -> None:
    """Stopped members too are gone soon after the number of seconds in the environment."""
    roots = [
        subprocess.Popen(
            agent.argv(),
            env=agent_environment(marker, roll_call, seconds=1),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for agent in HOSTILE_TREES
    ]

    assert wait_until_gone(marker, within_s=20) == []
    assert roll_call.wait_until_gone(within_s=1)
    for root in roots:
        root.wait()


@pytest.mark.parametrize("agent", BAD_SPEAKERS, ids=str)
def test_a_bad_speaker_says_its_piece(agent: Hostile, marker: str, roll_call: RollCall) -> None:
    """Each program comes as far as its lie also where nobody listens to it."""
    with uncontained(agent, marker, roll_call):
        assert roll_call.wait_for(1) == ["root"]


def test_only_sigkill_ends_the_six_roles(marker: str, roll_call: RollCall) -> None:
    """SIGTERM to all is seen by all six; the two that ignore it and the stubborn root stay."""
    with uncontained(Hostile("six_roles", 6, ("stubborn",)), marker, roll_call):
        roll_call.wait_for(6)

        for process in alive(marker):
            os.kill(process.pid, signal.SIGTERM)
        roll_call.wait_until(lambda: len(roll_call.signals()) == 6, "six reports")

        assert all(names == ["SIGTERM"] for names in roll_call.signals().values())
        assert len(wait_until_gone(marker, within_s=0.5)) == 3
