"""Whatever call of the set-up fails, and whoever is killed in it: nothing is left of a run."""

import os
import subprocess
from typing import Final

import pytest

from agentctl_protocol.vocabulary import Containment
from agentctl_testkit import command_of
from agentctl_testkit.attacks import AttackRange
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.faults import SPAWN_STEPS
from agentctl_testkit.injection import ERRORS, Struck, Victim, failures

_EVERY: Final = bool(os.environ.get("AGENTCTL_TEST_EVERY_CALL"))
"""Not only some of the hundreds of calls of one name: takes minutes."""

CHAINS: Final = [
    pytest.param("strict", "pid-namespace", marks=needs(Capability.PID_NAMESPACE)),
    pytest.param("standard", "pid-namespace", marks=needs(Capability.PID_NAMESPACE)),
    pytest.param("standard", "subreaper"),
]
STEPS: Final = [
    step
    for step in SPAWN_STEPS[Containment.PID_NAMESPACE]
    # Before any run; and where a program is spawned, no process of ours becomes the agent.
    if step != "spawner:started" and not step.startswith("agent:")
]
_BEFORE_INIT: Final = ("spawner:forked", "warden:forked", "warden:decoded")


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(("level", "containment"), CHAINS)
def test_any_call_of_the_set_up_may_fail(
    level: str, containment: str, error: str, attack_range: AttackRange
) -> None:
    """With EPERM, ENOSYS, ENOSPC: refused in a sentence, or as strong as ever; EINTR: it works.

    No mount, process, descriptor or file is left of any, and the next run works.
    """
    wrong = {}
    for caller in attack_range.callers.values():
        with Struck.open(caller, level, containment) as struck:
            struck.settle()
            calls = struck.calls()
            for failure in failures(calls, len(calls) if _EVERY else 5, error):
                if fault := struck.fault(failure):
                    wrong[caller.name, failure] = fault
            if litter := struck.litter():
                wrong[caller.name, "afterwards"] = str(litter)
    assert wrong == {}, _lines(wrong)


@pytest.mark.parametrize(
    ("level", "failure"), [("strict", "open_tree:3:ENOSYS"), ("standard", "seccomp:1:EPERM")]
)
def test_the_command_says_why_and_what_to_do(
    level: str, failure: str, attack_range: AttackRange
) -> None:
    """Exit 125, one line of what is wrong, one of what to do, and no traceback."""
    for caller in attack_range.callers.values():
        workspace = caller.directory / "refused-workspace"
        workspace.mkdir(exist_ok=True)
        os.chown(workspace, caller.uid, caller.uid)
        words = ("run", "--sandbox", level, "--workspace", str(workspace), "--", "true")
        done = subprocess.run(
            [command_of(caller.python), *words],
            cwd="/",
            env={
                **caller.environment,
                "HOME": "/nowhere",
                "AGENTCTL_HOME": str(caller.directory / "refused"),
                "AGENTCTL_FAILPOINTS": f"syscall:{failure}",
            },
            capture_output=True,
            text=True,
            check=False,
            **caller.identity,
        )
        assert done.returncode == 125, done
        error, hint = done.stderr.splitlines()
        assert error.startswith("error: the sandbox's "), done
        assert hint.startswith("hint: "), done


@needs(Capability.PID_NAMESPACE)
@pytest.mark.parametrize("victim", [Victim.SPAWNER, Victim.WARDEN, Victim.INIT])
def test_a_keeper_may_be_killed_at_any_step(victim: Victim, attack_range: AttackRange) -> None:
    """The run is over, no mount, process, descriptor or file is left, and the next run works."""
    wrong = {}
    for caller in attack_range.callers.values():
        with Struck.open(caller, "strict", "pid-namespace", STEPS) as struck:
            struck.settle()
            for step in STEPS:
                if victim is Victim.INIT and step in _BEFORE_INIT:
                    continue
                if victim is Victim.WARDEN and step == "spawner:forked":
                    continue
                if fault := struck.kill(victim, step):
                    wrong[caller.name, step] = fault
            if litter := struck.litter():
                wrong[caller.name, "afterwards"] = str(litter)
    assert wrong == {}, _lines(wrong)


@needs(Capability.PID_NAMESPACE)
@pytest.mark.parametrize("step", STEPS)
def test_the_supervisor_may_be_killed_at_any_step(step: str, attack_range: AttackRange) -> None:
    """Its run and its keepers are gone, and no mount and no file is left of them."""
    wrong = {}
    for caller in attack_range.callers.values():
        with Struck.open(caller, "strict", "pid-namespace", [step]) as struck:
            if fault := struck.kill(Victim.SUPERVISOR, step):
                wrong[caller.name, step] = fault
            if litter := struck.litter():
                wrong[caller.name, "afterwards"] = str(litter)
    assert wrong == {}, _lines(wrong)


def _lines(wrong: dict[tuple[str, str], str]) -> str:
    return "\n".join(f"{' '.join(where)}: {what}" for where, what in wrong.items())
