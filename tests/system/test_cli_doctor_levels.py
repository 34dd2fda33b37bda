"""`agentctl doctor` on poorer machines: which step of a level fails, and what would help."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_testkit import AgentctlHome, Finished, poorer
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.ordinary import Installation, OrdinaryHome, installed

#: Not that of "nobody", which everybody is in a user namespace that has no map yet.
_SOMEBODY = 4242


class PoorerHome(AgentctlHome):
    """The command line on a poorer machine."""

    kind = ""

    def argv(self, *arguments: str) -> tuple[str, ...]:
        return tuple(poorer.argv(self.kind, *super().argv(*arguments)))


class PoorerOrdinaryHome(OrdinaryHome):
    """The same, prepared by root, for the ordinary user."""

    kind = ""

    def argv(self, *arguments: str) -> tuple[str, ...]:
        return tuple(poorer.argv(self.kind, *super().argv(*arguments), uid=_SOMEBODY))


def checks_of(done: Finished) -> dict[str, dict[str, str]]:
    """What was found, by name; and that the exit code is that of the worst."""
    told = done.json()
    assert done.err == ""
    checks = {check["name"]: check for check in told["checks"]}
    failed = any(check["status"] == "fail" for check in checks.values())
    assert (done.code, told["ok"]) == (int(failed), not failed)
    return checks


def as_root(kind: str, tmp_path: Path, level: str = "strict") -> dict[str, dict[str, str]]:
    home = PoorerHome(tmp_path / "home", {"AGENTCTL_SANDBOX": level})
    home.kind = kind
    (tmp_path / "here").mkdir()
    checks = checks_of(home.run("doctor", "-o", "json", cwd=tmp_path / "here"))
    assert not home.root.exists()
    assert not list((tmp_path / "here").iterdir())
    return checks


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    with installed() as made:
        yield made


def as_user(
    kind: str, installation: Installation, level: str = "strict"
) -> dict[str, dict[str, str]]:
    here = installation.directory / f"here-{kind}"
    here.mkdir()
    here.chmod(0o777)
    home = PoorerOrdinaryHome(installation, here / "home")
    home.environment["AGENTCTL_SANDBOX"] = level
    home.kind = kind
    return checks_of(home.run("doctor", "-o", "json", cwd=here))


@needs(Capability.ROOT)
def test_on_this_machine_both_levels_work_for_root(home: AgentctlHome, tmp_path: Path) -> None:
    """Every step was taken, in the directory that a run would have."""
    checks = checks_of(home.run("doctor", "-o", "json", cwd=tmp_path))
    for level in ("strict", "standard"):
        assert checks[f"sandbox {level}"]["detail"].endswith("steps, confirmed by the kernel")
        assert checks[f"sandbox {level}"]["status"] == "ok"


@needs(Capability.ROOT, Capability.ORDINARY_PYTHON)
def test_on_this_machine_both_levels_work_for_a_user(installation: Installation) -> None:
    """The same for somebody without privileges."""
    checks = as_user("same", installation)
    assert checks["pid namespace"]["status"] == "ok"
    assert checks["sandbox strict"]["status"] == checks["sandbox standard"]["status"] == "ok"


@needs(Capability.ROOT)
def test_where_namespaces_and_mounts_are_refused_standard_works(tmp_path: Path) -> None:
    """As in a container of docker's: strict fails at its first step, and the flags are named."""
    checks = as_root("container", tmp_path)
    strict = checks["sandbox strict"]
    assert strict["status"] == "fail"
    assert strict["detail"].startswith("namespaces: no pid namespace")
    assert "--sandbox standard works here" in strict["consequence"]
    for capability in ("SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE"):
        assert capability in strict["fix"]
    assert checks["sandbox standard"]["status"] == "ok"
    assert checks["pid namespace"]["status"] == "warn"


@needs(Capability.ROOT)
def test_who_needs_standard_only_is_not_failed_for_strict(tmp_path: Path) -> None:
    """AGENTCTL_SANDBOX says which level has to work."""
    checks = as_root("container", tmp_path, "standard")
    assert checks["sandbox strict"]["status"] == "warn"
    assert not [check for check in checks.values() if check["status"] == "fail"]


@needs(Capability.ROOT)
def test_the_capabilities_that_are_named_are_enough(tmp_path: Path) -> None:
    """With docker's own choice and those three, strict works."""
    assert as_root("capable-container", tmp_path)["sandbox strict"]["status"] == "ok"


@needs(Capability.ROOT)
def test_without_landlock_nothing_is_confined(tmp_path: Path) -> None:
    """Both levels say so, at that step."""
    checks = as_root("no-landlock", tmp_path)
    for name in ("sandbox strict", "sandbox standard"):
        assert "has no Landlock" in checks[name]["detail"]
        assert "lsm=landlock" in checks[name]["fix"]
    assert (checks["Landlock"]["status"], checks["Landlock"]["detail"]) == ("fail", "none")


@needs(Capability.ROOT)
def test_the_root_of_a_rootless_container_has_no_uids_to_give(tmp_path: Path) -> None:
    """What helps is not to be root there."""
    strict = as_root("rootless-root", tmp_path)["sandbox strict"]
    assert strict["status"] == "fail"
    assert "as an ordinary user of this container" in strict["fix"]


@needs(Capability.ROOT, Capability.ORDINARY_PYTHON)
def test_without_user_namespaces_the_setting_is_named(installation: Installation) -> None:
    """A user needs one, for everything else."""
    checks = as_user("no-user-namespaces", installation)
    strict = checks["sandbox strict"]
    assert strict["status"] == "fail"
    assert strict["detail"].startswith("namespaces: no user namespace")
    assert strict["fix"].startswith("sudo sysctl user.max_user_namespaces=10000")
    assert checks["sandbox standard"]["status"] == "ok"


@needs(Capability.ROOT, Capability.ORDINARY_PYTHON)
def test_a_masked_proc_is_found_and_its_flag_named(installation: Installation) -> None:
    """The kernel mounts no new /proc in a user namespace while parts of the old are covered."""
    checks = as_user("masked-proc", installation)
    strict = checks["sandbox strict"]
    assert strict["status"] == "fail"
    assert "/proc is refused" in strict["detail"]
    assert any(word in strict["fix"] for word in ("systempaths", "unmask=ALL", "masked in /proc"))


@needs(Capability.ROOT, Capability.ORDINARY_PYTHON)
def test_in_a_container_a_user_is_told_other_flags(installation: Installation) -> None:
    """No capability helps: what is needed is not to be forbidden."""
    strict = as_user("container", installation)["sandbox strict"]
    assert strict["detail"].startswith("namespaces: no user namespace")
    assert "seccomp" in strict["fix"]
    assert "SYS_ADMIN" not in strict["fix"]


@needs(Capability.ROOT)
@pytest.mark.parametrize(
    ("failure", "step"),
    [
        ("open_tree:3:EPERM", "private root"),
        ("pivot_root:1:EPERM", "private root"),
        ("sethostname:1:EPERM", "host name"),
        ("setresuid:1:EPERM", "uid"),
        ("landlock_restrict_self:1:EPERM", "Landlock"),
    ],
)
def test_the_step_that_fails_is_the_one_that_is_named(
    home: AgentctlHome, tmp_path: Path, failure: str, step: str
) -> None:
    """Wherever the kernel stops."""
    environment = {"AGENTCTL_FAILPOINTS": f"syscall:{failure}"}
    done = home.run("doctor", "-o", "json", environment=environment, cwd=tmp_path)
    strict = checks_of(done)["sandbox strict"]
    assert strict["status"] == "warn"
    assert strict["detail"].startswith(f"{step}: ")
