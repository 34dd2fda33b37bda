"""Other names of a directory: a table of mounts, and what is concluded from it."""

import os
from pathlib import Path

import pytest

from agentctl_protocol.spec import SpecError
from agentctl_supervisor.filesystem.mount_table import Mount, mounts, table
from agentctl_supervisor.policy import path_aliases
from agentctl_supervisor.policy.links import is_beneath
from agentctl_supervisor.policy.never_writable import Reserved
from agentctl_supervisor.policy.path_aliases import OtherNames
from agentctl_supervisor.policy.unsuitable_directories import Places, refuse_broad
from agentctl_supervisor.policy.workspace import Candidate, choose

_ADA = "/home/ada"


_ROWS = (
    ("8:1", "/", "/"),
    ("8:2", "/home", "/home"),
    ("8:2", "/www", "/srv"),
    ("8:2", "/www/a", "/mnt"),
    ("8:2", "/", "/data"),
)


def _table(*rows: tuple[str, str, str]) -> list[Mount]:
    return [
        Mount(number, device.encode(), root, point, "ext4")
        for number, (device, root, point) in enumerate(rows, 1)
    ]


@pytest.fixture
def imagined(monkeypatch: pytest.MonkeyPatch) -> OtherNames:
    """The names by `_ROWS`; whatever is compared is the same file."""
    found = os.stat("/")
    table = _table(*_ROWS)

    def mount_of(path: str) -> int:
        above = [mount for mount in table if is_beneath(path, mount.point)]
        return max(above, key=lambda mount: len(mount.point)).number

    monkeypatch.setattr(os, "lstat", lambda _: found)
    monkeypatch.setattr(path_aliases, "mount_of", mount_of)
    return OtherNames(table)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/home/ada/x", ("/data/home/ada/x",)),
        ("/data/home/ada", ("/home/ada",)),
        ("/data", ()),  # /home shows a part of it, and not itself
        ("/srv/a/b", ("/mnt/b", "/data/www/a/b")),
        ("/mnt", ("/srv/a", "/data/www/a")),
        ("/usr/bin", ()),
    ],
)
def test_what_is_mounted_twice_has_the_name_of_each_place(
    imagined: OtherNames, path: str, names: tuple[str, ...]
) -> None:
    """Also where one of them shows a part of what the other shows."""
    assert sorted(imagined.of(path)) == sorted(names)
    within = tuple(name for name in names if name.startswith("/data/"))
    assert imagined.of(path, ("/data",)) == within


def test_what_is_mounted_inside_is_known_by_its_other_names(imagined: OtherNames) -> None:
    """Of file systems that are shown twice; whoever gives away a directory gives those away."""
    assert imagined.mounted_in("/") == ("/home", "/srv", "/mnt", "/data")
    assert imagined.mounted_in("/srv") == ()
    assert sorted(imagined.of("/mnt")) == ["/data/www/a", "/srv/a"]


def test_what_is_covered_by_another_mount_is_no_other_name(tmp_path: Path) -> None:
    """The kernel is asked whose mount it is, and whether both are one."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    rows = _table(("8:2", "/", str(one)), ("8:2", "/", str(other)))
    assert OtherNames(rows).of(str(one)) == ()


def test_subvolumes_beside_each_other_are_no_reason_to_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of btrfs, and as a container's files of the host: nothing is shown twice."""
    monkeypatch.setattr(os, "lstat", lambda _: pytest.fail("nothing is to be looked at"))
    rows = _table(("0:30", "/@", "/"), ("0:30", "/@home", "/home"), ("0:30", "/h", "/etc/hosts"))
    names = OtherNames(rows)
    assert (names.of("/home/ada"), names.of("/etc/hosts")) == ((), ())


def test_any_name_of_a_mount_point_can_be_read() -> None:
    """The kernel escapes blanks and line ends, and no carriage return."""
    line = b"36 35 98:0 /a\\040b /m/a\rb\\012c\\134d rw,noatime shared:1 - ext3 /dev/root rw"
    found = list(mounts(b"\n".join((line, b"", b"what is this"))))
    assert found == [Mount(36, b"98:0", "/a b", "/m/a\rb\nc\\d", "ext3")]


def test_this_machine_is_read() -> None:
    """The real table; a directory that is mounted once has no other name."""
    names = OtherNames(mounts(table()))
    assert names.of("/proc/self/no/such/thing") == ()
    assert "OtherNames of " in repr(names)


_PLACES = Places(homes=(_ADA,), home=_ADA, states=("/srv/state",))


@pytest.mark.parametrize(
    ("real", "other", "why"),
    [
        ("/mnt/h", "/home", "is another name of /home: above a home directory"),
        ("/mnt/x", "/usr/lib", "is another name of /usr/lib: the system's"),
        ("/mnt/x", "/usr", "is another name of /usr: the system's"),
        ("/mnt/x", "/srv/state/runs", "is another name of /srv/state/runs: where agentctl keeps"),
        ("/mnt/x", "/kept/lib", "is another name of /kept/lib: agentctl's own"),
    ],
)
def test_no_workspace_is_so_by_another_name(real: str, other: str, why: str) -> None:
    """Nor by ``--rw``, but for what is only refused as a workspace."""
    asked = Candidate(real, real, others=(other,))
    with pytest.raises(SpecError, match=why):
        choose(asked, Candidate("/", "/"), "/fresh", places=_PLACES, reserved=Reserved(("/kept",)))


def test_no_workspace_has_a_home_in_it_by_another_name() -> None:
    """What is mounted in a workspace is given away with it."""
    asked = Candidate("/work", "/work", holds=("/home",))
    with pytest.raises(SpecError, match="around a mount of /home: above a home directory"):
        choose(asked, Candidate("/", "/"), "/fresh", places=_PLACES, reserved=Reserved())


@pytest.mark.parametrize("other", ["/mnt", "/nix/persist/home/ada/p", "/usr/home/ada/p"])
def test_a_place_that_many_use_may_be_another_name(other: str) -> None:
    """Who mounts a project at /mnt, or keeps it in a directory of the system's, means no harm."""
    asked = Candidate(f"{_ADA}/p", f"{_ADA}/p", others=(other,))
    found = choose(asked, Candidate("/", "/"), "/fresh", places=_PLACES, reserved=Reserved())
    assert found.path == f"{_ADA}/p"


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ("/srv/state/runs", "another name of /srv/state/runs, is where agentctl keeps its state"),
        (_ADA, "another name of /home/ada, is too much"),
        ("/proc", "another name of /proc,: the run has a /proc of its own"),
    ],
)
def test_what_is_too_much_is_so_by_another_name(other: str, told: str) -> None:
    """``--ro`` and ``--rw`` say of what it is one."""
    with pytest.raises(SpecError, match=told):
        refuse_broad("/mnt/x", "--ro", _PLACES, (other,))
