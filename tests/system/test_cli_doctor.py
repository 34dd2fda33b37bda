"""`agentctl doctor`: what protects runs here, tried and not guessed."""

from typing import Any

import msgspec
import pytest

from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor.cli.commands.doctor import page
from agentctl_supervisor.doctor.chain import Chain
from agentctl_supervisor.doctor.check import Check
from agentctl_supervisor.doctor.checks import judge
from agentctl_supervisor.doctor.facts import Facts, Place
from agentctl_testkit import AgentctlHome
from agentctl_testkit.capabilities import Capability

_CHAINS = {
    "strict": Chain(steps={"namespaces": "", "private root": "", "seccomp": ""}),
    "standard": Chain(steps={"Landlock": "", "seccomp": ""}),
}
_GOOD = Facts(
    uid=1000,
    user="ada",
    python="/usr/bin/python3",
    level=Sandbox.STRICT,
    chains=_CHAINS,
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
        ({"sealed": False}, "sealing", "warn", "kill its keepers"),
        ({"landlock_abi": 3}, "sealing", "ok", "seccomp alone"),
        ({"landlock_abi": 0}, "Landlock", "fail", "lsm=landlock"),
        ({"landlock_abi": 0, "container": "docker"}, "Landlock", "fail", "seccomp=unconfined"),
        ({"landlock_abi": 0, "level": Sandbox.BASIC}, "Landlock", "warn", "are refused"),
        ({"landlock_abi": 2}, "Landlock", "warn", "without truncate, TCP, ioctl on devices, sig"),
        ({"landlock_abi": 2}, "Landlock", "warn", "boot Linux 6.12 or newer"),
        ({"landlock_abi": 9}, "Landlock", "ok", "ABI 9"),
        (
            {"cgroup": False, "user_manager": "running"},
            "cgroup v2",
            "warn",
            "systemd-run --user --scope -p Delegate=yes",
        ),
        (
            {"cgroup": False, "user_manager": "not running"},
            "cgroup v2",
            "warn",
            "loginctl enable-linger ada",
        ),
        ({"cgroup": False}, "cgroup v2", "warn", "a group of the caller's own"),
        ({"cgroup": False, "container": "podman"}, "cgroup v2", "warn", "/sys/fs/cgroup writable"),
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
    # Nothing sealed is told where sealing is, too; and so is an old Landlock.
    assert others in ([], ["sealing"], ["Landlock"])


def _strict(step: str, why: str = "refused", hint: str = "", **fields: Any) -> Check:
    chain = Chain(steps={"earlier": "", step: why}, hint=hint)
    return _judged(chains={**_CHAINS, "strict": chain}, **fields)["sandbox strict"]


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"user/max_user_namespaces": 0}, "sudo sysctl user.max_user_namespaces=10000"),
        ({"user/max_net_namespaces": 0}, "sudo sysctl user.max_net_namespaces=10000"),
        (
            {"kernel/unprivileged_userns_clone": 0},
            "sudo sysctl kernel.unprivileged_userns_clone=1",
        ),
        (
            {"kernel/apparmor_restrict_unprivileged_userns": 1},
            (
                "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0\n"
                "an AppArmor profile for /usr/bin/python3: profile agentctl /usr/bin/python3"
                " flags=(unconfined) { userns, }"
            ),
        ),
    ],
)
@pytest.mark.parametrize("step", ["namespaces", "identity", "private root", "loopback"])
def test_a_setting_that_forbids_namespaces_is_named_first(
    step: str, settings: dict[str, int], fix: str
) -> None:
    """At whatever step it shows; as of Ubuntu's, which lets the namespace be made."""
    check = _strict(step, settings=settings)
    assert check.status == "fail"
    assert check.detail == f"{step}: refused"
    assert check.fix == fix


@pytest.mark.parametrize(
    ("uid", "container", "fix"),
    [
        (
            0,
            "docker",
            (
                "docker run --cap-add SYS_ADMIN --cap-add NET_ADMIN --cap-add SYS_PTRACE"
                " --security-opt seccomp=unconfined --security-opt apparmor=unconfined ..."
            ),
        ),
        (
            1000,
            "docker",
            (
                "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
                " --security-opt systempaths=unconfined ..."
            ),
        ),
        (
            1000,
            "podman",
            (
                "podman run --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
                " --security-opt unmask=ALL ..."
            ),
        ),
        (
            0,
            "container",
            (
                "start the container with CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SYS_PTRACE"
                " and no seccomp profile"
            ),
        ),
        (0, "", "in a container: give it CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_SYS_PTRACE"),
        (1000, "", "in a container: no seccomp profile, and nothing masked in /proc"),
    ],
)
def test_in_a_container_the_flags_are_named(uid: int, container: str, fix: str) -> None:
    """Those of the tool that made it, for this user."""
    assert _strict("namespaces", uid=uid, container=container).fix == fix


def test_what_is_about_files_has_the_fix_that_a_run_is_told() -> None:
    """Such as a file system that cannot map owners; advice to ask the doctor is none here."""
    hint = "Use a workspace on another file system"
    assert _strict("private root", hint=hint, uid=0).fix == hint
    assert "CAP_SYS_ADMIN" in _strict("private root", hint="See `agentctl doctor`.", uid=0).fix


def test_the_root_of_a_rootless_container_is_told_so() -> None:
    """It has no uids for its runs, whatever flags it is given."""
    check = _strict("uid", uid=0, every_uid=False, container="podman")
    assert check.fix == "start agentctl as an ordinary user of this container, and not as its root"


@pytest.mark.parametrize(
    ("level", "statuses"),
    [
        (Sandbox.STRICT, ("fail", "warn")),
        (Sandbox.STANDARD, ("warn", "fail")),
        (Sandbox.BASIC, ("warn", "warn")),
    ],
)
def test_the_level_that_runs_get_by_default_has_to_work(
    level: Sandbox, statuses: tuple[str, str]
) -> None:
    """Whoever has chosen a weaker one knows why."""
    broken = Chain(steps={"Landlock": "refused"})
    judged = _judged(level=level, chains={"strict": broken, "standard": broken})
    assert (judged["sandbox strict"].status, judged["sandbox standard"].status) == statuses
    assert "--sandbox basic works here" in judged["sandbox strict"].consequence
    judged = _judged(level=level, chains={**_CHAINS, "strict": broken})
    assert "--sandbox standard works here" in judged["sandbox strict"].consequence


def test_a_probe_that_does_not_work_is_no_verdict() -> None:
    """Neither good nor bad, and not well."""
    check = _judged(chains={**_CHAINS, "strict": Chain(trouble="it broke")})["sandbox strict"]
    assert (check.status, check.detail) == ("fail", "the probe did not work: it broke")


def test_the_page_fits_and_is_harmless_whatever_is_found() -> None:
    """At 80 columns; only what is to be pasted may be longer."""
    evil = "\x1b]0;x\x07 " + "word " * 60
    lines = page([Check("name", "fail", evil, evil, "fix\x1b[2J it\nor that"), *judge(_GOOD)], 80)
    assert max(map(len, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    assert lines[lines.index("      fix: fix it") + 1] == "      or:  or that"
    assert lines[-1] == f"{len(judge(_GOOD))} ok, 0 warnings, 1 failed"


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
    wanted = f"fail  state: cannot use {home.root}: it is not a directory"
    assert "".join(wanted.split()) in "".join(done.out.split())
    assert "fix: set AGENTCTL_HOME" in done.out
    assert max(map(len, done.out.splitlines())) <= 80
