"""Group F: secrets and control.  A run finds neither its caller's secrets nor agentctl's files."""

from typing import Final

import pytest

from agentctl_testkit.attack_plant import Plant
from agentctl_testkit.attacks import (
    USER,
    AttackRange,
    Probe,
    attack_files,
    limits_of_standard,
    params,
)

_NO_PID_NAMESPACE: Final = (
    "without a pid namespace every user of the machine sees every command line"
)
PROBES: Final = (
    Probe(
        "f01_inherited_secrets",
        harmless=limits_of_standard(_NO_PID_NAMESPACE, "command lines", harms=True),
    ),
    Probe("f02_state_directory", plant=Plant.beside),
    Probe(
        "f05_other_run",
        plant=Plant.beside,
        harmless=(
            *limits_of_standard(_NO_PID_NAMESPACE, "listdir"),
            *limits_of_standard(
                "without a pid namespace it can be made slower", "setpriority", callers=(USER,)
            ),
        ),
    ),
)


@pytest.mark.parametrize("probe", params(PROBES))
def test_attack_on_secrets(probe: Probe, attack_range: AttackRange) -> None:
    """It works outside, and does not inside."""
    attack_range.check(probe)


def test_every_attack_on_secrets_is_tried() -> None:
    """A file in the directory that no list names would prove nothing."""
    assert attack_files("f") == {probe.name for probe in PROBES}
