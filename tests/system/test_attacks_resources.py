"""Group E: resources.  What a run takes has an end, and it cannot move the end.

E1 to E4, memory, swap, processes and processors, are limits of a cgroup's, which runs do not
have yet.  E5, a deadline, and E6, floods of output, have tests of their own: those of the time
limit in ``test_matrix_deadlines.py`` and of hostile agents in ``test_hostile_agents.py``.
"""

from typing import Final

import pytest

from agentctl_testkit.attacks import AttackRange, Probe, attack_files, params
from agentctl_testkit.capabilities import Capability

PROBES: Final = (
    Probe("e07_descriptors", needs=(Capability.ROOT,)),
    Probe("e08_raise_limits", needs=(Capability.ROOT,)),
    Probe("e09_quotas"),
    Probe("e10_core_dump"),
)


@pytest.mark.parametrize("probe", params(PROBES))
def test_attack_on_resources(probe: Probe, attack_range: AttackRange) -> None:
    """It works outside, and does not inside."""
    attack_range.check(probe)


def test_every_attack_on_resources_is_tried() -> None:
    """A file in the directory that no list names would prove nothing."""
    assert attack_files("e") == {probe.name for probe in PROBES}
