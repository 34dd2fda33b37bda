"""Sockets of services in what a run is given: out of its reach, unless they are given by name."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agentctl_protocol.spawning import Bind, Cover
from agentctl_protocol.spec import SpecError
from agentctl_protocol.vocabulary import Network, Sandbox
from agentctl_supervisor.policy import sockets
from agentctl_supervisor.policy.decision import Policy
from agentctl_testkit.policy import policy_in


@pytest.fixture
def services(workspace: Path) -> Iterator[Path]:
    """Services that named their sockets in each way there is; the directory that they lie in."""
    (workspace / "run/deep").mkdir(parents=True)
    (workspace / "plain").write_text("")
    outside = os.getcwd()
    with ExitStack() as stack:
        for directory, name in (
            (workspace, "top"),
            (workspace, "run/deep/relative"),
            (workspace / "run", str(workspace / "run/absolute")),
            (workspace / "run", "../by its end"),
            (workspace, "./run/./crooked"),
        ):
            made = stack.enter_context(socket.socket(socket.AF_UNIX))
            os.chdir(directory)
            try:
                made.bind(name)
            finally:
                os.chdir(outside)
        # What a dead service left is nobody's: the next one makes its own there.
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(workspace / "left"))
        yield workspace


def _covered(policy: Policy, directory: Path) -> set[str]:
    return {
        os.path.relpath(piece.path, directory)
        for piece in policy.view.pieces
        if isinstance(piece.part, Cover) and piece.why == sockets.WHY
    }


_ALL = {"top", "run/deep/relative", "run/absolute", "by its end", "run/crooked"}


def test_a_run_without_a_network_is_kept_from_the_services_in_its_directories(
    services: Path,
) -> None:
    """In the workspace, and in what else it may read or write to."""
    assert _covered(policy_in(services), services) == _ALL
    other = services.parent / "other"
    other.mkdir(exist_ok=True)
    for option in ("ro", "rw"):
        given: dict[str, Any] = {option: (str(services),)}
        found = policy_in(other, **given)
        assert _covered(found, services) == _ALL
        assert _covered(policy_in(other), services) == set()


def test_directories_around_a_covered_socket_can_be_moved(services: Path) -> None:
    """It is out of reach wherever it is moved to: nothing has to stay in its place for that."""
    assert [piece.path for piece in policy_in(services).view.pieces if piece.is_pin] == []


def test_a_network_of_the_hosts_has_its_services(services: Path) -> None:
    """``--net host`` is all that the caller reaches."""
    assert _covered(policy_in(services, net=Network.HOST), services) == set()


def test_a_socket_is_given_by_its_name(services: Path) -> None:
    """And then it is the run's to connect to, and no other is."""
    policy = policy_in(services, rw=("top",))
    assert _covered(policy, services) == _ALL - {"top"}
    other = services.parent / "other"
    other.mkdir(exist_ok=True)
    (part,) = [
        piece.part
        for piece in policy_in(other, rw=(str(services / "top"),)).view.pieces
        if piece.path == str(services / "top")
    ]
    assert part == Bind(os.fsencode(services / "top"), writable=True, mapped=True)


@pytest.mark.parametrize(
    ("options", "told", "hint"),
    [
        ({"ro": ("top",)}, "--ro top is a socket", "--rw "),
        ({"rw": ("top",), "sandbox": Sandbox.STANDARD}, "--rw top is a socket", "strict"),
        ({"rw": ("fifo",)}, "neither a file nor a directory nor a socket", "name a file"),
    ],
)
def test_what_cannot_be_given_is_refused_for_its_true_reason(
    services: Path, options: dict[str, Any], told: str, hint: str
) -> None:
    """To see a socket is to use its service; at standard there are none."""
    os.mkfifo(services / "fifo")
    with pytest.raises(SpecError, match=told) as refused:
        policy_in(services, **options)
    assert hint in refused.value.hint
