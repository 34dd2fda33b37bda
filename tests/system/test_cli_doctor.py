"""`agentctl doctor`: what protects runs here, tried and not guessed."""

from typing import Any

import msgspec
import pytest

from agentctl_supervisor.cli.doctor_command import page
from agentctl_supervisor.doctor.checks import Check, judge
from agentctl_supervisor.doctor.facts import Facts, Place
from agentctl_testkit import AgentctlHome
from agentctl_testkit_capabilities import Capability

_GOOD = Facts(
    uid=1000,
    kernel="6.1.0-23-amd64",
    pid_namespace="",
    sealed=True,
    landlock_abi=6,
    seccomp=True,
    settings={"fs/inotify/max_user_instances": 128},
    cgroup_mount="/sys/fs/cgroup",
    cgroup=True,
    controllers=("memory", "pids"),
    state=Place("/home/a/.local/state/agentctl", True, "", "ext4", 1 << 40),
    runtime=Place("/run/user/1000/agentctl", True, "", "tmpfs", 1 << 30),
    longest_socket=60,
    spawner_s=0.1,
    distributions={"agentctl-supervisor": "0.1.0"},
    now=1.8e9,
)


def _judged(**fields: Any) -> dict[str, Check]:
    return {check.name: check for check in judge(msgspec.structs.replace(_GOOD, **fields))}


def test_on_a_good_machine_every_line_is_ok() -> None:
    """Nothing to say, nothing to do."""
    assert {check.status for check in judge(_GOOD)} == {"ok"}
    assert not any(check.consequence or check.fix for check in judge(_GOOD))


@pytest.mark.parametrize(
    ("fields", "name", "status", "said"),
    [
        ({"kernel": "5.10.0"}, "kernel", "fail", "boot a newer kernel"),
        ({"kernel": "5.15.0-1-x"}, "kernel", "ok", ""),
        ({"kernel": "what"}, "kernel", "fail", "newer"),
        ({"probe": "No module"}, "pid namespace", "fail", "reinstall"),
        ({"pid_namespace": "EPERM"}, "pid namespace", "warn", "subreaper"),
        ({"pid_namespace": "EPERM", "sealed": False}, "pid namespace", "fail", "--sandbox none"),
        (
            {
                "pid_namespace": "EPERM",
                "settings": {
                    "kernel/apparmor_restrict_unprivileged_userns": 1,
                    "fs/inotify/max_user_instances": 128,
                },
            },
            "pid namespace",
            "warn",
            "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ({"sealed": False, "landlock_abi": 0}, "sealing", "warn", "kill its keepers"),
        ({"landlock_abi": 3}, "sealing", "ok", "seccomp alone"),
        ({"cgroup": False}, "cgroup v2", "warn", "Delegate=yes"),
        ({"cgroup": False, "cgroup_mount": ""}, "cgroup v2", "warn", "not mounted"),
        ({"controllers": ()}, "cgroup v2", "ok", "without memory and pids"),
        ({"spawner": "did not come up"}, "spawner", "fail", "AGENTCTL_DEBUG=1"),
        ({"spawner_s": 5.0}, "spawner", "warn", "slow"),
        (
            {"distributions": {"agentctl-supervisor": "1", "agentctl-child": "1"}},
            "installation",
            "warn",
            "pip uninstall agentctl-child",
        ),
        ({"distributions": {}}, "installation", "ok", "source tree"),
        ({"state": Place("/x", trouble="/ is not writable")}, "state", "fail", "AGENTCTL_HOME"),
        ({"state": Place("/x", True, "", "nfs4", 1 << 40)}, "state", "warn", "local directory"),
        ({"state": Place("/x", True, "", "ext4", 1 << 20)}, "state", "warn", "agentctl prune"),
        ({"runtime": Place("/x", trouble="no")}, "sockets", "fail", "no supervisor"),
        ({"longest_socket": 108}, "sockets", "warn", "shorter path"),
        ({"settings": {}}, "inotify", "warn", "logs -f"),
        ({"now": 0.0}, "clock", "warn", "set-ntp"),
        ({"boot_id": False}, "clock", "warn", "boot id"),
    ],
)
def test_what_is_not_well_has_its_consequence_and_its_fix(
    fields: dict[str, Any], name: str, status: str, said: str
) -> None:
    """One line changes, the others stay as they were."""
    judged = _judged(**fields)
    check = judged.pop(name)
    assert check.status == status
    assert said in f"{check.detail} {check.consequence} {check.fix}"
    assert (status == "ok") == (not check.consequence and not check.fix)
    others = [one.name for one in judged.values() if one.status != "ok"]
    assert others in ([], ["sealing"])  # nothing sealed is told where sealing is, too


def test_the_page_fits_and_is_harmless_whatever_is_found() -> None:
    """At 80 columns; only what is to be pasted may be longer."""
    evil = "\x1b]0;x\x07 " + "word " * 60
    lines = page([Check("name", "fail", evil, evil, "fix\x1b[2J it"), *judge(_GOOD)], 80)
    assert max(map(len, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    assert "      fix: fix it" in lines
    assert lines[-1] == "10 ok, 0 warnings, 1 failed"


def test_it_tells_what_this_machine_can_do(home: AgentctlHome) -> None:
    """The containment that the tests found is the one that it finds; it leaves nothing behind."""
    done = home.run("doctor", "-o", "json")
    told = done.json()
    checks = {check["name"]: check for check in told["checks"]}
    assert (told["schema"], told["ok"], done.err) == (1, done.code == 0, "")
    assert (checks["pid namespace"]["status"] == "ok") == Capability.PID_NAMESPACE.here
    assert checks["spawner"]["status"] in ("ok", "warn")
    assert not home.root.exists()


def test_a_state_directory_that_cannot_be_used_is_a_failure(home: AgentctlHome) -> None:
    """Exit code 1, with the fix."""
    home.root.touch()
    done = home.run("doctor")
    assert done.code == 1
    # A long path is broken to fit the line, wherever that is.
    wanted = f"fail  state: {home.root} is not a directory"
    assert "".join(wanted.split()) in "".join(done.out.split())
    assert "fix: set AGENTCTL_HOME" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
