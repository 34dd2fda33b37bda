"""Group B: processes.  Those of the host are out of reach, if not invisible."""

from typing import Final

import pytest

from agentctl_testkit.attacks import (
    USER,
    AttackRange,
    Probe,
    attack_files,
    limits_of_standard,
    params,
)
from agentctl_testkit.capabilities import Capability

_SIGNALS: Final = (
    ()
    if Capability.LANDLOCK_SCOPE.here
    else limits_of_standard(
        "without a pid namespace Landlock keeps signals in since Linux 6.12 only",
        *("kill", "killpg", "tgkill", "rt_sigqueueinfo", "SIGKILL"),
        callers=(USER,),
        harms=True,
    )
)

PROBES: Final = (
    Probe(
        "b01_look_at_processes",
        harmless=limits_of_standard(
            "without a pid namespace /proc is the host's, and Landlock sees to memory, environment"
            " and files only",
            *("listdir", "status", "stat", "cmdline", "pidfd_open"),
            harms=True,
        ),
    ),
    Probe("b02_signal_processes", seen=True, harmless=_SIGNALS),
    Probe("b03_trace_processes", needs=(Capability.YAMA_OFF,)),
    Probe(
        "b04_limit_and_schedule",
        seen=True,
        harmless=limits_of_standard(
            "without a pid namespace the user's processes can be made slower; programs need these"
            " calls for their own threads",
            *("setpriority", "sched_setaffinity", "sched_setscheduler", "ioprio_set"),
            callers=(USER,),
            harms=True,
        ),
    ),
    Probe("b05_enter_namespaces", needs=(Capability.ROOT,)),
)


@pytest.mark.parametrize("probe", params(PROBES))
def test_attack_on_processes(probe: Probe, attack_range: AttackRange) -> None:
    """It works outside, and does not inside; the victim is as it was."""
    attack_range.check(probe)


def test_every_attack_on_processes_is_tried() -> None:
    """A file in the directory that no list names would prove nothing."""
    assert attack_files("b") == {probe.name for probe in PROBES}
