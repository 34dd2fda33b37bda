"""Group A: files.  What a run was not given it neither sees nor changes."""

from typing import Final

import pytest

from agentctl_testkit_attacks import AttackRange, Probe, attack_files, params

PROBES: Final = (Probe("a01_read_planted_secret"),)


@pytest.mark.parametrize("probe", params(PROBES))
def test_attack_on_files(probe: Probe, attack_range: AttackRange) -> None:
    """It works outside, and does not inside; the host is as it was."""
    attack_range.check(probe)


def test_every_attack_on_files_is_tried() -> None:
    """A file in the directory that no list names would prove nothing."""
    assert attack_files("a") == {probe.name for probe in PROBES}
