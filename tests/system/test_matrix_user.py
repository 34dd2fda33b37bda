"""The matrix once more, smaller, for an ordinary user: other namespaces, other powers."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from agentctl_protocol.vocabulary import Containment
from agentctl_testkit import RollCall, agent_environment, wait_until_gone
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.clock import TimeLimit
from agentctl_testkit.matrix import (
    CONTAINMENT_VARIABLE,
    CONTAINMENTS,
    EVERYBODY,
    Cast,
    assert_nothing_left,
    in_foreground,
)
from agentctl_testkit.ordinary import Installation, OrdinaryHome, installed

pytestmark = needs(Capability.ROOT, Capability.ORDINARY_PYTHON)

BY_NAME = {str(cast): cast for cast in EVERYBODY}
HARDEST = [BY_NAME[name] for name in ("runaway", "comet", "six_roles")]
MORE = [BY_NAME[name] for name in ("own_subreaper", "ptracer", "gil_hog-native-called")]

hardest = pytest.mark.parametrize("cast", HARDEST, ids=str)
more = pytest.mark.parametrize("cast", HARDEST + MORE, ids=str)
in_both = pytest.mark.parametrize("containment", CONTAINMENTS, ids=str)


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with installed() as installation:
        yield installation


@pytest.fixture
def home(installation: Installation) -> OrdinaryHome:
    return OrdinaryHome(installation, installation.directory / secrets.token_hex(4))


@pytest.fixture
def roll_call(installation: Installation) -> Iterator[RollCall]:
    with RollCall(installation.directory) as roll_call:
        yield roll_call


def _report(home: OrdinaryHome) -> Any:
    done = home.run("show", "cell", "-o", "json", as_ordinary_user=True)
    assert done.code == 0, done
    report = done.json()
    assert report["processes"]["survivors"] == 0
    return report


@more
@in_both
def test_stop_by_the_user(
    cast: Cast, containment: Containment, marker: str, roll_call: RollCall, home: OrdinaryHome
) -> None:
    """No further up the ladder than needed, and the layers are the user's, not root's."""
    with in_foreground(home, cast, marker, roll_call, containment) as supervisor:
        others = supervisor.and_its_spawner
        run_id = supervisor.run_id
        stop = home.run("stop", "cell", as_ordinary_user=True)

        assert_nothing_left(marker, roll_call, run_id, but=others)
        assert stop.code == 0, stop
        assert supervisor.process.wait(20) == cast.stop_code

    report = _report(home)
    assert (report["result"], report["reason"]) == ("stopped", "user")
    assert [(step["step"], step["answered"]) for step in report["ladder"]] == list(cast.ladder)
    wanted = {Containment.PID_NAMESPACE: "user namespace", Containment.SUBREAPER: "subreaper"}
    assert wanted[containment] in report["layers"]
    assert "agent can kill its keepers" not in report["layers"]


@hardest
@in_both
def test_time_limit_of_the_user(
    cast: Cast, containment: Containment, marker: str, installation: Installation
) -> None:
    """Exit code 124, and nothing is left."""
    limit_s = 0.5
    while True:
        home = OrdinaryHome(installation, installation.directory / secrets.token_hex(4))
        with RollCall(installation.directory) as roll_call:
            try:
                with in_foreground(
                    *(home, cast, marker, roll_call, containment, "--time", f"{limit_s}s")
                ) as supervisor:
                    run_id = supervisor.run_id
                    code = supervisor.process.wait(30)
            except AssertionError:
                # The tree was not up in time: that proves nothing about it.
                limit_s *= 2
                if limit_s > 30:
                    raise
                continue
            assert_nothing_left(marker, roll_call, run_id)
        break

    assert code == 124
    report = _report(home)
    assert (report["result"], report["reason"]) == ("limit", "time")


@more
@in_both
def test_the_users_supervisor_is_killed(
    cast: Cast, containment: Containment, marker: str, roll_call: RollCall, home: OrdinaryHome
) -> None:
    """Within a second nothing is alive, keepers included."""
    with in_foreground(home, cast, marker, roll_call, containment) as supervisor:
        run_id = supervisor.run_id
        supervisor.process.kill()
        limit = TimeLimit(1.0)
        left = wait_until_gone(marker, run_id, supervisor.spawner_mark, within_s=limit.left_s)

        assert not left, f"alive a second later: {[str(process) for process in left]}"
        assert roll_call.wait_until_gone(limit.left_s)

    report = _report(home)
    assert (report["result"], report["reason"]) == ("lost", "supervisor_died")


@hardest
@in_both
def test_the_users_supervisor_is_frozen(
    cast: Cast, containment: Containment, marker: str, roll_call: RollCall, home: OrdinaryHome
) -> None:
    """A stop goes past it, without root's powers."""
    with in_foreground(home, cast, marker, roll_call, containment) as supervisor:
        others = supervisor.and_its_spawner
        supervisor.freeze()
        stop = home.run("stop", "cell", as_ordinary_user=True)

        assert_nothing_left(marker, roll_call, supervisor.run_id, but=others)
        assert stop.code == 0, stop
        supervisor.thaw()
        assert supervisor.process.wait(20) == (143 if cast.term_ends_it else 137)

    report = _report(home)
    assert (report["result"], report["reason"]) == ("stopped", "user")


@hardest
@in_both
def test_the_users_agent_exits_by_itself(
    cast: Cast, containment: Containment, marker: str, roll_call: RollCall, home: OrdinaryHome
) -> None:
    """Its code is the command's, and what it left behind is killed."""
    done = home.run(
        *("run", "-q", "--name", "cell", *cast.command_line("--leave")),
        environment={
            **agent_environment(marker, roll_call),
            CONTAINMENT_VARIABLE: containment,
        },
        as_ordinary_user=True,
    )
    roll_call.hear()

    assert len(roll_call.up()) >= cast.members
    assert done.code == 7, done
    assert_nothing_left(marker, roll_call, _report(home)["id"])
    assert _report(home)["reason"] == "exit"
