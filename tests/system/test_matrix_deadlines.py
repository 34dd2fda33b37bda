"""Deadlines hold though everybody who could enforce them is frozen, but one."""

import os
import signal
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agentctl_protocol.records import ContainedRecord, Stop
from agentctl_protocol.report import Report
from agentctl_protocol.vocabulary import Containment, Reason, Result
from agentctl_supervisor.client import Client
from agentctl_testkit import AgentctlHome, RollCall
from agentctl_testkit.matrix import (
    BUSY_S,
    CONTAINMENTS,
    PROGRAMS,
    Foreground,
    assert_nothing_left,
    bodies,
    in_foreground,
)

RUNAWAY = next(cast for cast in PROGRAMS if cast.agent.name == "runaway")
PROMISED_S = 0.3
"""How much later than deadline and graces the last process may be alive."""
ATTEMPTS = 3


def _assert_in_time(
    directory: Path, containment: Containment, marker: str, *, freeze_warden: bool = False
) -> None:
    """The run dies in time; a machine that is busy with something else gets more than one go."""
    late_s: list[float] = []
    while not late_s or late_s[-1] > PROMISED_S:
        assert len(late_s) < ATTEMPTS, f"late by {late_s}"
        attempt = directory / f"{len(late_s)}"
        attempt.mkdir()
        late_s.append(_overshoot_s(attempt, containment, marker, freeze_warden=freeze_warden))


def _overshoot_s(
    directory: Path, containment: Containment, marker: str, *, freeze_warden: bool
) -> float:
    """How long after its deadline and graces a run with frozen keepers was empty."""
    limit_s = 0.5
    while True:
        limit_s *= 2
        home = AgentctlHome(directory / f"{limit_s:g}")
        with (
            RollCall(directory) as roll_call,
            in_foreground(
                *(home, RUNAWAY, marker, roll_call, containment, "--time", f"{limit_s}s")
            ) as supervisor,
        ):
            others = supervisor.and_its_spawner
            supervisor.freeze()
            if any(isinstance(body, Stop) for body in bodies(supervisor.directory)):
                assert limit_s < 30
                continue  # it was frozen too late: the limit was its own doing
            if freeze_warden:
                os.kill(_warden(supervisor), signal.SIGSTOP)
            report = Client(home.root).show("cell")
            due = _at(report) + limit_s + RUNAWAY.grace_s + RUNAWAY.term_grace_s
            gone = roll_call.wait_until_gone(due - time.time() + BUSY_S)
            late_s = time.time() - due

            assert gone, f"alive {BUSY_S} s after the deadline: {roll_call.lines}"
            assert_nothing_left(marker, roll_call, but=others)
            if freeze_warden:
                os.kill(_warden(supervisor), signal.SIGCONT)
            supervisor.thaw()
            assert supervisor.process.wait(20) == 124
            report = Client(home.root).show("cell")
            assert (report.result, report.reason) == (Result.LIMIT, Reason.TIME)
            return late_s


def _at(report: Report) -> float:
    assert report.started_at is not None
    assert report.started_at <= datetime.now(UTC)
    return report.started_at.timestamp()


def _warden(supervisor: Foreground) -> int:
    (contained,) = (b for b in bodies(supervisor.directory) if isinstance(b, ContainedRecord))
    return contained.warden.pid


@pytest.mark.parametrize("containment", CONTAINMENTS, ids=str)
def test_a_frozen_supervisor_lengthens_no_deadline(
    containment: Containment, marker: str, tmp_path: Path
) -> None:
    """The warden's timer: empty by deadline, both graces and 0.3 s."""
    _assert_in_time(tmp_path, containment, marker)


def test_a_frozen_warden_lengthens_no_deadline_either(marker: str, tmp_path: Path) -> None:
    """Init's timer, where there is an init."""
    _assert_in_time(tmp_path, Containment.PID_NAMESPACE, marker, freeze_warden=True)
