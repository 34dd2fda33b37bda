"""A program that embeds a supervisor may fork: its forks hold on to nothing of a run."""

import os
import signal

import pytest

from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Containment
from agentctl_testkit import agent_environment, alive
from agentctl_testkit.faults import Work, keepers_of, staged


def test_the_end_of_standard_input_arrives() -> None:
    """A fork, taken while a run reads from us, does not keep its standard input open."""
    with staged() as stage:
        env = agent_environment(stage.marker, stage.roll_call)
        stage.embed(RunSpec(argv=("cat",), stdin=True, env=env, cwd="/"), forks=True)
        stage.heard("finished")


@pytest.mark.parametrize("containment", list(Containment))
def test_the_end_of_a_warden_is_seen(containment: Containment) -> None:
    """A fork in the middle of a start does not keep the warden's end of its socket open."""
    with staged() as stage:
        supervisor = stage.embed(stage.spec(Work.TREE), containment=containment, forks=True)
        stage.heard("up root")
        _, (warden,), _ = keepers_of(supervisor)
        os.kill(warden, signal.SIGKILL)
        stage.heard("finished")
        assert alive(stage.marker) == []


def test_a_dead_supervisors_run_is_told_apart_from_a_stuck_ones() -> None:
    """The forks hold the control socket, too, and never answer: the run is lost all the same."""
    with staged() as stage:
        supervisor = stage.embed(stage.spec(Work.TREE), forks=True)
        stage.heard("up root")
        (directory,) = stage.runs()
        os.kill(supervisor, signal.SIGKILL)

        stopped = stage.home.run("stop", directory.id)
        assert (stopped.code, stopped.out.strip()) == (
            0,
            f"{directory.id}: already finished: lost",
        )
        assert stage.home.run("show", directory.id, "-o", "json").json()["result"] == "lost"
