"""The steps are data, all of them are taken, and one that fails refuses the run by its name."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from agentctl_child.keepers import steps
from agentctl_protocol.spawning import Cover, Part, Refused, Scratch, Text
from agentctl_protocol.vocabulary import Sandbox
from agentctl_testkit import wait_until_gone
from agentctl_testkit.capabilities import Capability
from agentctl_testkit.ordinary import Installation, installed
from agentctl_testkit.view import CALLERS, MEBIBYTE, Caller, mounts_of_runs

#: Every call of the set-up, with how often it is made at least.
OF_ALL = {
    "clone3": 1,
    "sethostname": 1,
    "ioctl": 1,
    "unshare": 1,
    "openat2": 40,
    "open_tree": 12,
    "mount_setattr": 15,
    "fsopen": 5,
    "fsconfig": 15,
    "fsmount": 5,
    "move_mount": 12,
    "mkdir": 6,
    "open": 6,
    "symlink": 5,
    "write": 1,
    "fchdir": 1,
    "pivot_root": 1,
    "umount2": 1,
    "chdir": 1,
    "setrlimit": 2,
    "PR_CAPBSET_DROP": 1,
    "PR_CAP_AMBIENT": 1,
    "capset": 1,
    "PR_SET_NO_NEW_PRIVS": 1,
    "landlock_create_ruleset": 1,
    "landlock_add_rule": 5,
    "landlock_restrict_self": 1,
    "seccomp": 1,
}
OF_ROOT = {"setgroups": 1, "setresgid": 1, "setresuid": 1, "uid_map": 1, "gid_map": 1}
OF_USERS = {"setgroups": 1, "uid_map": 1, "gid_map": 1}


def test_the_order_is_told_as_data() -> None:
    """As JSON, for whoever explains what a run will be confined by."""
    for level in Sandbox:
        done = subprocess.run(
            [sys.executable, "-I", "-m", "agentctl_child.keepers.steps", level],
            capture_output=True,
            check=True,
        )
        told = json.loads(done.stdout)
        assert [step["name"] for step in told] == [
            step.name for step in steps.STEPS if level in step.levels
        ]
        assert all(step["what"] and step["why"] for step in told)


def test_what_must_come_before_what() -> None:
    """Mounts before the uid, the uid before capabilities, seccomp last."""
    names = [step.name for step in steps.STEPS]
    assert names.index("private root") < names.index("uid") < names.index("capabilities")
    assert names[-3:] == ["no new privileges", "Landlock", "seccomp"]
    assert len(set(names)) == len(names)


def test_a_step_without_an_act_is_found() -> None:
    """Nothing of the list can be left out in silence."""
    with pytest.raises(KeyError):
        steps.carry_out("surrender", Sandbox.STRICT, frozenset(), {})


def view_of(caller: Caller) -> tuple[Part, ...]:
    """With a part of each kind."""
    return caller.view(
        Text(path=b"/note", data=b"x"),
        Text(path=b"/etc/hostname", data=b"x"),
        Cover(path=b"/etc/ssl"),
        Scratch(path=b"/scratch", size_bytes=MEBIBYTE),
    )


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation | None]:
    """For the ordinary user, where we are root."""
    if not Capability.ORDINARY_PYTHON.here:
        yield None
        return
    with installed() as made:
        yield made


def chosen(calls: dict[str, int]) -> Iterator[str]:
    """The first, a middle and a late one of each, with errors that take turns."""
    for number, (call, times) in enumerate(calls.items()):
        for nth in sorted({1, times // 2 or 1, times}):
            word = ("EPERM", "ENOSYS", "ENOSPC")[(nth + number) % 3]
            # In place of a clone3 that is forbidden or unknown there is clone.
            yield f"syscall:{call}:{nth}:{'ENOSPC' if call == 'clone3' else word}"


def faults(caller: Caller) -> Iterator[str]:
    """What is wrong with how a run was refused."""
    before = sorted(os.listdir(caller.directory))
    run = caller.launch("/bin/true", view=view_of(caller))
    last = run.drain()[-1]
    if not isinstance(last, Refused) or last.fault != "sandbox":
        yield f"not refused: {last}"
        return
    if "\n" in last.detail or len(last.detail) > 400 or not last.hint:
        yield f"no sentence, or no way out: {last}"
    if said := run.output_bytes():
        yield f"it said {said!r}"
    if left := wait_until_gone(run.run, within_s=5):
        yield f"left alive: {left}"
    if sorted(os.listdir(caller.directory)) != before:
        yield "it left something in the workspace"


@pytest.mark.parametrize("name", CALLERS)
def test_a_call_that_fails_refuses_the_run(name: str, installation: Installation | None) -> None:
    """Any call of the chain, with any error: refused in a sentence, nothing left, no traceback."""
    mounts = mounts_of_runs()
    wrong = {}
    for failing in chosen({**OF_ALL, **(OF_ROOT if name == "root" else OF_USERS)}):
        with Caller.open(name, installation, env={"AGENTCTL_FAILPOINTS": failing}) as caller:
            if found := list(faults(caller)):
                wrong[failing] = found
            if left := mounts_of_runs(caller.directory):
                wrong[failing] = left
    assert wrong == {}
    assert mounts_of_runs() == mounts


@pytest.mark.parametrize("name", CALLERS)
def test_an_interrupted_call_is_made_again(name: str, installation: Installation | None) -> None:
    """EINTR is no refusal."""
    calls = ("open_tree", "mount_setattr", "fsconfig", "move_mount", "openat2", "write")
    failing = ",".join(f"syscall:{call}:3:EINTR" for call in calls)
    with Caller.open(name, installation, env={"AGENTCTL_FAILPOINTS": failing}) as caller:
        run = caller.launch("/bin/true", view=view_of(caller))
        assert run.exited().code == 0
