"""Which directory a run may write to, and which it may not be given."""

import os
import pwd
import re
from pathlib import Path

import pytest

from agentctl_protocol.spec import SpecError
from agentctl_supervisor.policy.never_writable import Reserved
from agentctl_supervisor.policy.unsuitable_directories import Places, places, refuse_broad
from agentctl_supervisor.policy.workspace import Candidate, Workspace, choose, look
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.policy import ALONE

_PLACES = Places(
    homes=("/home/ada",),
    home="/home/ada",
    states=("/home/ada/.local/state/agentctl", "/srv/state"),
)
_FRESH = "/state/runs/r-aaaaaaaa/workspace"


def _chosen(cwd: str, asked: Candidate | None = None, *, writable: bool = True) -> Workspace:
    return choose(
        asked,
        Candidate(cwd, cwd, writable=writable),
        _FRESH,
        places=_PLACES,
        reserved=Reserved(
            kept=("/home/ada/project/.venv", "/srv/agentctl/agentctl_supervisor"),
            searched={"/home/ada/flat": "a way out"},
        ),
    )


@pytest.mark.parametrize(
    "cwd",
    [
        "/home/ada/project",
        "/home/ada/a",
        "/home/ada/flat/data",
        "/tmp/x",
        "/opt/app",
        "/usr/src/app",
        "/srv/x",
        "/work",
    ],
)
def test_the_working_directory_is_the_workspace(cwd: str) -> None:
    """Where a person works is what the run may write to."""
    assert _chosen(cwd) == Workspace(cwd, cwd)


@pytest.mark.parametrize(
    ("cwd", "why"),
    [
        ("/", "the whole machine"),
        ("/home/ada", "a home directory"),
        ("/home", "above a home directory"),
        ("/root", "a directory that programs share"),
        ("/tmp", "a directory that programs share"),
        ("/var/tmp", "a directory that programs share"),
        ("/usr/src", "a directory that programs share"),
        ("/usr", "the system's"),
        ("/usr/lib/x", "the system's"),
        ("/etc/cron.d", "the system's"),
        ("/dev/shm", "the system's"),
        ("/home/ada/.local/state/agentctl/runs", "where agentctl keeps its state"),
        ("/srv/state", "where agentctl keeps its state"),
        ("/home/ada/project/.venv", "agentctl's own, or its interpreter's"),
        ("/home/ada/project/.venv/lib", "agentctl's own, or its interpreter's"),
        ("/home/ada/flat", "where agentctl itself imports from (sys.path)"),
    ],
)
def test_what_is_too_much_is_given_to_no_run(cwd: str, why: str) -> None:
    """Started there, it gets a fresh workspace and says why; asked for by name, it is an error."""
    hint = "a way out" if cwd == "/home/ada/flat" else ""
    assert _chosen(cwd) == Workspace(_FRESH, _FRESH, private=True, why=why, hint=hint)
    with pytest.raises(SpecError, match=re.escape(f"--workspace {cwd} is {why}")) as caught:
        _chosen("/work", Candidate(cwd, cwd))
    assert caught.value.hint.startswith(hint or "name a directory")


def test_a_directory_that_is_not_ours_is_no_workspace_by_itself() -> None:
    """A run that could write nothing gets a place where it can."""
    assert _chosen("/work", writable=False) == Workspace(
        _FRESH, _FRESH, private=True, why="not yours to write to"
    )


def test_a_run_begins_where_its_caller_is_if_that_is_in_the_workspace() -> None:
    """Else at the top of the workspace."""
    asked = Candidate("/work", "/work")
    assert _chosen("/work/deep/er", asked) == Workspace("/work", "/work/deep/er")
    assert _chosen("/workshop", asked) == Workspace("/work", "/work")
    assert _chosen("/", asked) == Workspace("/work", "/work")


def test_a_workspace_is_a_directory_that_is_there_and_can_be_written_to(tmp_path: Path) -> None:
    """Each of the three is an error of its own, with something to do about it."""
    (tmp_path / "file").touch()
    for name, told in (("missing", "is not there"), ("file", "is not a directory")):
        with pytest.raises(SpecError, match=told) as caught:
            _chosen("/work", look(str(tmp_path / name), ALONE))
        assert caught.value.hint
    with pytest.raises(SpecError, match="cannot be written to"):
        _chosen("/work", Candidate("/srv/x", "/srv/x", writable=False))


def test_a_link_is_the_place_that_it_leads_to(tmp_path: Path) -> None:
    """Paths inside are paths outside, and no part of a view lies behind a link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    asked = look(str(tmp_path / "link"), ALONE)
    assert _chosen("/", asked).path == str(tmp_path.resolve() / "real")


def test_a_home_is_one_by_the_environment_and_by_the_user_database() -> None:
    """Neither a changed HOME nor none makes the real one fair game."""
    told = places({"HOME": "/somewhere/else"})
    assert told.homes[0] == told.home == "/somewhere/else"
    assert len(told.homes) == 2
    assert places({}).homes == told.homes[1:]
    assert places({"HOME": "/"}).home == told.homes[1]


@needs(Capability.ROOT)
def test_the_home_of_whoever_calls_sudo_is_no_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There HOME is root's, and the keys are in the directory that the person is in."""
    home = tmp_path.resolve() / "ada"
    (home / "project").mkdir(parents=True)
    os.chown(home, 4242, 4242)
    root = pwd.getpwuid(0)

    def look_up(uid: int) -> pwd.struct_passwd:
        entry = ("ada", "x", 4242, 4242, "", str(home), "/bin/sh")
        return pwd.struct_passwd(entry) if uid == 4242 else root

    monkeypatch.setattr(pwd, "getpwuid", look_up)
    sudo = places({"HOME": "/root", "SUDO_UID": "4242"})
    assert sudo.why_no_workspace(str(home)) == "a home directory"
    assert sudo.why_no_workspace(str(home.parent)) == "above a home directory"
    # As after su, which says nothing of who that was.
    assert places({"HOME": "/root"}).why_no_workspace(str(home)) == "a home directory"
    assert sudo.why_no_workspace(str(home / "project")) == ""
    with pytest.raises(SpecError, match="too much"):
        refuse_broad(str(home), "--ro", places({"HOME": "/root"}))


def test_all_places_of_state_are_known(tmp_path: Path) -> None:
    """Also those of runs that were started without AGENTCTL_HOME."""
    known = places({"HOME": str(tmp_path), "AGENTCTL_HOME": str(tmp_path / "own")}).states
    for place in ("own", "own/run", ".local/state/agentctl", ".config/agentctl"):
        assert str(tmp_path / place) in known


@pytest.mark.parametrize("path", ["/", "/home/ada", "/home", "/proc", "/dev/sda", "/sys/kernel"])
def test_more_than_a_directory_cannot_be_named_either(path: str) -> None:
    """``--ro`` of a home directory would show every key in it."""
    with pytest.raises(SpecError):
        refuse_broad(path, "--ro", _PLACES)
    refuse_broad("/home/ada/data", "--ro", _PLACES)


def test_the_state_cannot_be_named() -> None:
    """A run neither reads nor writes what is recorded about runs."""
    with pytest.raises(SpecError, match="where agentctl keeps its state"):
        refuse_broad("/srv/state/runs", "--rw", _PLACES)
