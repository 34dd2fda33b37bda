"""What a Landlock domain forbids and gives, right by right and version by version."""

import contextlib
import dataclasses
import itertools
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from agentctl_child.sandbox import landlock, landlock_rights
from agentctl_protocol.vocabulary import Network
from agentctl_testkit import AGENTS, ORDINARY_UID
from agentctl_testkit.capabilities import Capability, needs

PROBER: Final = AGENTS / "landlock_prober.py"
#: What programs need to run at all.
SYSTEM: Final = ("/usr", "/lib", "/lib64", "/bin")
NEWEST: Final = 9
VERSIONS: Final = range(1, min(landlock.abi(), NEWEST) + 1)
CALLERS: Final = (
    pytest.param(None, id="caller"),
    pytest.param(ORDINARY_UID, id="ordinary", marks=needs(Capability.ROOT)),
)
EVERY_CALLER: Final = pytest.mark.parametrize("uid", CALLERS)

#: Act: since which version it is restricted, and what becomes of it then in a directory
#: that no rule covers, a readable, a writable and the run's own one.  Before, it succeeds
#: everywhere.
ON_FILES: Final[dict[str, tuple[int, str, str, str, str]]] = {
    "read_file": (1, "EACCES", "ok", "ok", "ok"),
    "read_dir": (1, "EACCES", "ok", "ok", "ok"),
    "execute": (1, "EACCES", "ok", "ok", "ok"),
    "write_file": (1, "EACCES", "EACCES", "ok", "ok"),
    "append": (1, "EACCES", "EACCES", "ok", "ok"),
    "make_reg": (1, "EACCES", "EACCES", "ok", "ok"),
    "make_unnamed": (1, "EACCES", "EACCES", "ok", "ok"),
    "make_dir": (1, "EACCES", "EACCES", "ok", "ok"),
    "make_sym": (1, "EACCES", "EACCES", "ok", "ok"),
    "make_fifo": (1, "EACCES", "EACCES", "EACCES", "ok"),
    "make_sock": (1, "EACCES", "EACCES", "ok", "ok"),
    "remove_file": (1, "EACCES", "EACCES", "ok", "ok"),
    "remove_dir": (1, "EACCES", "EACCES", "ok", "ok"),
    "truncate": (3, "EACCES", "EACCES", "ok", "ok"),
}
PLACES: Final = ("closed", "readable", "writable", "own")


@dataclasses.dataclass
class Tree:
    """Directories, one for each way to treat them, with an object for every act in each."""

    root: Path
    uid: int | None

    def __post_init__(self) -> None:
        for place in PLACES:
            directory = self.root / place
            for name in ("listed", "removed", "other"):
                (directory / name).mkdir(parents=True)
            for act in (*ON_FILES, "empty_read_only", "rename", "link", "chmod"):
                (directory / act).write_text("content")
            shutil.copy("/bin/true", directory / "execute")
            with socket.socket(socket.AF_UNIX) as door:
                door.bind(str(directory / "resolve_unix"))
        if self.uid is not None:
            for path in (self.root, *self.root.rglob("*")):
                os.chown(path, self.uid, self.uid)

    def at(self, place: str, act: str) -> str:
        """The object in a directory that an act is tried on."""
        name = {
            "read_dir": "listed",
            "remove_dir": "removed",
            "make_unnamed": ".",
            **{f"make_{kind}": f"new {kind}" for kind in ("reg", "dir", "sym", "fifo", "sock")},
            "make_char": "new char",
            "make_block": "new block",
        }.get(act, act)
        return str(self.root / place / name)

    def domain(self, network: Network = Network.HOST, **more: list[str]) -> dict[str, Any]:
        paths: dict[str, list[str]] = {
            "readable": [
                *(path for path in SYSTEM if not Path(path).is_symlink() and Path(path).exists()),
                str(self.root / "readable"),
            ],
            "writable": [str(self.root / "writable")],
            "own": [str(self.root / "own")],
        }
        for name, additions in more.items():
            paths[name] = paths.get(name, []) + additions
        return {**paths, "paths": list(paths), "network": network}

    def probe(
        self,
        domain: dict[str, Any] | str | None,
        *acts: tuple[str, ...],
        abi: int | None = None,
        prove: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        order = {"uid": self.uid, "abi": abi, "domain": domain, "acts": acts, "prove": prove}
        done = subprocess.run(
            [sys.executable, PROBER, json.dumps(order)], stdout=subprocess.PIPE, check=True
        )
        found = json.loads(done.stdout)
        assert isinstance(found, dict)
        return found

    def outcomes(
        self, domain: dict[str, Any] | str | None, *acts: tuple[str, ...], abi: int | None = None
    ) -> list[str]:
        found: list[str] = self.probe(domain, *acts, abi=abi)["outcomes"]
        return found


@contextlib.contextmanager
def tree_of(uid: int | None) -> Iterator[Tree]:
    # Not pytest's directory: nobody else can enter that.
    with tempfile.TemporaryDirectory(prefix="agentctl-landlock-") as name:
        Path(name).chmod(0o755)
        yield Tree(Path(name), uid)


@pytest.fixture
def tree(uid: int | None) -> Iterator[Tree]:
    with tree_of(uid) as made:
        yield made


@EVERY_CALLER
def test_without_a_domain_all_of_it_works(tree: Tree) -> None:
    """Each act succeeds everywhere without Landlock, so that what follows is its doing."""
    acts = [(act, tree.at(place, act)) for act in ON_FILES for place in PLACES]

    assert set(tree.outcomes(None, *acts)) == {"ok"}


@EVERY_CALLER
@pytest.mark.parametrize("abi", VERSIONS)
def test_each_right_holds_where_this_version_has_it(tree: Tree, abi: int) -> None:
    """Right by right: what no rule gives fails with EACCES, if the version restricts it at all."""
    acts = [(act, tree.at(place, act)) for act in ON_FILES for place in PLACES]

    found = tree.outcomes(tree.domain(), *acts, abi=abi)

    expected = [
        outcome if abi >= since else "ok"
        for since, *outcomes in ON_FILES.values()
        for outcome in outcomes
    ]
    named = [f"{act} in {place}" for act in ON_FILES for place in PLACES]
    assert dict(zip(named, found, strict=True)) == dict(zip(named, expected, strict=True))


@EVERY_CALLER
@pytest.mark.parametrize("abi", VERSIONS)
def test_a_file_that_may_be_read_is_not_emptied_by_opening_it(tree: Tree, abi: int) -> None:
    """O_TRUNC needs no write access to the descriptor; versions before 3 let it empty files."""
    acts = [("empty_read_only", tree.at(place, "empty_read_only")) for place in PLACES]

    found = tree.outcomes(tree.domain(), *acts, abi=abi)

    assert found == ["EACCES", "EACCES" if abi >= 3 else "ok", "ok", "ok"]
    emptied = not (tree.root / "readable" / "empty_read_only").read_text()
    assert emptied is (abi < 3)


@EVERY_CALLER
@pytest.mark.parametrize("abi", VERSIONS)
def test_files_change_their_directory_only_inside_what_may_be_written(tree: Tree, abi: int) -> None:
    """Rename and link: between writable directories from version 2 on, never across the border."""
    inside = str(tree.root / "writable")
    acts: list[tuple[str, ...]] = [
        ("rename", f"{inside}/rename", f"{inside}/renamed"),
        ("rename", f"{inside}/renamed", f"{inside}/other/renamed"),
        ("link", f"{inside}/link", f"{inside}/other/link"),
    ]
    for place in ("closed", "readable"):
        outside = str(tree.root / place)
        acts += [
            ("link", f"{outside}/link", f"{inside}/from {place}"),
            ("rename", f"{outside}/rename", f"{inside}/from {place}"),
            ("link", f"{inside}/link", f"{outside}/link in"),
            ("rename", f"{inside}/link", f"{outside}/rename in"),
            ("rename", f"{inside}/link", f"{outside}/rename"),
        ]

    within, between, linked, *across = tree.outcomes(tree.domain(), *acts, abi=abi)

    assert within == "ok"
    assert [between, linked] == (["ok", "ok"] if abi >= 2 else ["EXDEV", "EXDEV"])
    assert set(across) <= {"EXDEV", "EACCES"}


@needs(Capability.ROOT)
def test_no_device_is_made_even_where_everything_may_be_written() -> None:
    """Root with all its capabilities makes no device node inside a domain."""
    with tree_of(None) as tree:
        acts = [
            (act, tree.at(place, act)) for act in ("make_char", "make_block") for place in PLACES
        ]

        assert set(tree.outcomes(tree.domain(), *acts)) == {"EACCES"}
        assert set(tree.outcomes(None, *acts)) == {"ok"}


@EVERY_CALLER
def test_devices_take_commands_only_where_they_were_given_as_such(tree: Tree) -> None:
    """An ioctl works on a device that may be read only if it was given as a device (ABI 5)."""
    device = "/dev/urandom"
    act = ("ioctl_dev", device)
    restricted = "EACCES" if landlock.abi() >= 5 else "ok"

    assert tree.outcomes(tree.domain(readable=[device]), act) == [restricted]
    assert tree.outcomes(tree.domain(writable=[device]), act) == [restricted]
    assert tree.outcomes(tree.domain(devices=[device]), act) == ["ok"]
    assert tree.outcomes(tree.domain(devices=["/dev"]), act) == ["ok"]
    assert tree.outcomes(tree.domain(), act) == ["EACCES"]


@EVERY_CALLER
@pytest.mark.parametrize("abi", VERSIONS)
def test_no_process_outside_is_signalled_or_traced(tree: Tree, abi: int) -> None:
    """Signals to the outside fail from version 6 on; tracing fails with every version."""
    acts = [("signal",), ("ptrace",)]

    assert tree.outcomes(tree.domain(), *acts, abi=abi) == ["EPERM" if abi >= 6 else "ok", "EPERM"]
    assert tree.outcomes(None, ("signal",)) == ["ok"]


@EVERY_CALLER
@pytest.mark.parametrize("abi", VERSIONS)
def test_sockets_of_the_outside_are_reached_as_far_as_the_version_lets_them(
    tree: Tree, abi: int
) -> None:
    """Abstract ones fail from version 6 on; those in files from 9 on, and until then work."""
    name = f"agentctl-test-{secrets.token_hex(8)}"
    path = tree.root / "writable" / "door"
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as filed:
        abstract.bind(f"\0{name}")
        filed.bind(str(path))
        path.chmod(0o777)
        for door in (abstract, filed):
            door.listen(8)
        acts = [("abstract_unix", f"@{name}"), ("resolve_unix", str(path))]

        free = tree.outcomes(None, *acts)
        found = tree.outcomes(tree.domain(), *acts, abi=abi)

    assert free == ["ok", "ok"]
    assert found == ["EPERM" if abi >= 6 else "ok", "EACCES" if abi >= 9 else "ok"]


@EVERY_CALLER
@pytest.mark.parametrize("abi", VERSIONS)
@pytest.mark.parametrize("network", Network)
def test_tcp_is_denied_where_there_is_to_be_no_network(
    tree: Tree, abi: int, network: Network
) -> None:
    """Bind and connect fail from version 4 on if the network is NONE; HOST leaves them alone."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        acts = [("bind_tcp", "0"), ("connect_tcp", str(server.getsockname()[1]))]

        found = tree.outcomes(tree.domain(network), *acts, abi=abi)

    denied = network is Network.NONE and abi >= 4
    assert found == (["EACCES", "EACCES"] if denied else ["ok", "ok"])


@EVERY_CALLER
def test_metadata_is_left_alone(tree: Tree) -> None:
    """A known limit: chmod, utime and stat reach files out of the domain."""
    path = tree.at("closed", "chmod")

    assert tree.outcomes(tree.domain(), ("chmod", path), ("utime", path), ("stat", path)) == [
        "ok",
        "ok",
        "ok",
    ]


@EVERY_CALLER
def test_paths_lead_where_they_say(tree: Tree) -> None:
    """A rule is not made for what a symbolic link leads to, nor for what is missing."""
    (tree.root / "link").symlink_to(tree.root / "closed")
    missing = str(tree.root / "missing")

    def words(**paths: list[str]) -> Any:
        return tree.probe(tree.domain(Network.HOST, **paths))["words"]

    assert words(readable=[str(tree.root / "link")]) == "ELOOP"
    assert words(writable=[str(tree.root / "link" / "listed")]) == "ELOOP"
    assert words(readable=[missing]) == "ENOENT"
    assert words(writable=[missing]) == "ENOENT"
    assert isinstance(words(readable=[missing], optional=[missing]), list)


@EVERY_CALLER
@pytest.mark.parametrize("abi", VERSIONS)
def test_a_single_file_can_be_given(tree: Tree, abi: int) -> None:
    """A rule about a file carries only what files can have, so no version refuses it."""
    domain = tree.domain(
        readable=[tree.at("closed", "read_file")],
        writable=[tree.at("closed", "write_file"), tree.at("closed", "truncate")],
    )
    acts = [(act, tree.at("closed", act)) for act in ("read_file", "write_file", "truncate")]
    others = [
        ("read_file", tree.at("closed", "append")),
        ("write_file", tree.at("closed", "read_file")),
    ]

    assert tree.outcomes(domain, *acts, *others, abi=abi) == ["ok"] * 3 + ["EACCES"] * 2


@EVERY_CALLER
def test_what_this_version_lacks_is_said(tree: Tree) -> None:
    """The words for the report name the version, what it adds, and what it cannot restrict."""
    abi = landlock.abi()
    said = tree.probe(tree.domain(Network.NONE))["words"]
    as_first = tree.probe(tree.domain(Network.NONE), abi=1)["words"]

    assert said[0] == f"landlock abi {abi}"
    assert ("landlock scopes" in said) is (abi >= 6)
    assert ("landlock tcp" in said) is (abi >= 4)
    assert ("landlock without truncate" in said) is (abi < 3)
    assert as_first == [
        "landlock abi 1",
        "landlock without truncate",
        "landlock without tcp",
        "landlock without ioctl_dev",
        "landlock without scopes",
        "landlock without resolve_unix",
    ]
    # Not asked for, so neither had nor missed.
    assert not [word for word in tree.probe(tree.domain(), abi=1)["words"] if "tcp" in word]


@EVERY_CALLER
@pytest.mark.parametrize("abi", VERSIONS)
def test_reading_can_be_left_to_a_private_root(tree: Tree, abi: int) -> None:
    """Without a list of what may be read, only writing is restricted, and the words say so."""
    domain = tree.domain()
    domain["paths"].remove("readable")
    acts = [(act, tree.at(place, act)) for act in ON_FILES for place in PLACES]

    said = tree.probe(domain, *acts, abi=abi)

    reading = {"read_file", "read_dir", "execute", "truncate"}
    assert said["outcomes"] == [
        "ok" if act in reading else outcome
        for act, (_, *outcomes) in ON_FILES.items()
        for outcome in outcomes
    ]
    assert [word for word in said["words"] if "without" in word][:2] == [
        "landlock without reading",
        "landlock without truncate",
    ]


@EVERY_CALLER
def test_without_landlock_a_domain_is_an_error(tree: Tree) -> None:
    """A kernel without it refuses; nothing is silently left out."""
    assert (
        tree.probe(tree.domain(), abi=0)["words"] == "ENOTSUP"
    )  # Python's other name of EOPNOTSUPP


@EVERY_CALLER
def test_a_domain_is_proved_by_an_act_that_must_fail(tree: Tree) -> None:
    """The proof succeeds in a domain, and tells where there is none, or nothing to try it on."""
    closed = {"closed": tree.at("closed", "read_file")}
    nothing_closed = {"closed": None}

    assert tree.probe(tree.domain(), prove=closed)["proof"] == "ok"
    assert tree.probe(None, prove=closed)["proof"] == "NotEnforcedError"
    open_to_it = {"closed": tree.at("readable", "read_file")}
    assert tree.probe(tree.domain(), prove=open_to_it)["proof"] == "NotEnforcedError"
    assert tree.probe(tree.domain(), prove={"closed": "/no/such/file"})["proof"] == "ENOENT"
    expected = "NotEnforcedError" if landlock.has_scopes() else "ok"
    assert tree.probe(None, prove=nothing_closed)["proof"] == expected


@EVERY_CALLER
def test_the_seal_against_keepers_leaves_files_alone(tree: Tree) -> None:
    """`shut_in` forbids what reaches keepers, and neither writing nor moving files elsewhere."""
    inside = str(tree.root / "writable")
    acts: list[tuple[str, ...]] = [
        ("rename", f"{inside}/rename", f"{inside}/other/renamed"),
        ("link", f"{inside}/link", f"{inside}/other/link"),
        ("write_file", f"{inside}/write_file"),
        ("read_dir", "/sys"),
        ("ptrace",),
        ("signal",),
    ]

    found = tree.outcomes("shut_in", *acts)

    # A version that does not know the right to move files never gives it.
    moved = "ok" if landlock.abi() >= 2 else "EXDEV"
    assert found[:4] == [moved, moved, "ok", "ok"]
    assert found[4:] == ["EPERM", "EPERM" if landlock.has_scopes() else "ok"]


@pytest.mark.parametrize("abi", range(1, NEWEST + 2))
@pytest.mark.parametrize("network", Network)
def test_no_version_is_asked_for_what_it_does_not_know(abi: int, network: Network) -> None:
    """Handled rights are those of linux/landlock.h for each version; one more would be EINVAL."""
    files = {1: 0x1FFF, 2: 0x3FFF, 3: 0x7FFF, 4: 0x7FFF}.get(abi, 0xFFFF if abi < 9 else 0x1_FFFF)
    tcp = 3 if network is Network.NONE and abi >= 4 else 0

    handled = landlock_rights.handled(abi, network)
    given = landlock_rights.grants(abi)

    assert handled == (files, tcp, 3 if abi >= 6 else 0)
    assert all(mask & ~files == 0 for mask in given)
    assert given.readable == 0b1101
    assert given.sockets == files & 1 << 16
    assert given.own & (1 << 6 | 1 << 11 | 1 << 15 | 1 << 16) == 0
    assert given.writable == given.own & ~(1 << 10)
    assert landlock_rights.of_files(0x1_FFFF) == 0b1_1100_0000_0000_0111
    assert landlock_rights.of_files(files) & ~files == 0


def test_what_is_lacking_shrinks_with_each_version() -> None:
    """The newest version lacks nothing that we know of; each lacks only what later ones have."""
    lacking = [landlock_rights.lacking(abi, Network.NONE) for abi in range(1, NEWEST + 1)]

    assert lacking[-1] == ()
    assert all(set(later) <= set(earlier) for earlier, later in itertools.pairwise(lacking))
    assert landlock_rights.lacking(NEWEST + 1, Network.NONE) == ()


def test_coverage_of_a_right_is_the_version_s() -> None:
    """`covers` says of each right whether a domain here restricts it."""
    for name, right in landlock_rights.RIGHTS.items():
        assert landlock.covers(name) is (landlock.abi() >= right.since)
