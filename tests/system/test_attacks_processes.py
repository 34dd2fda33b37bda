"""Group B: processes.  Those of the host are out of reach, if not invisible."""

from typing import Final

import pytest

from agentctl_testkit_attacks import AttackRange, Probe, attack_files, params

PROBES: Final = (Probe("b04_limit_and_schedule", seen=True),)


@pytest.mark.parametrize("probe", params(PROBES))
def test_attack_on_processes(probe: Probe, attack_range: AttackRange) -> None:
    """It works outside, and does not inside; the victim is as it was."""
    attack_range.check(probe)


def test_every_attack_on_processes_is_tried() -> None:
    """A file in the directory that no list names would prove nothing."""
    assert attack_files("b") == {probe.name for probe in PROBES}
