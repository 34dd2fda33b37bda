"""What changed beneath a directory, though what is there was chosen by somebody hostile."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentctl_supervisor.filesystem import open_beneath
from agentctl_supervisor.workspace.changes import Bounds, Special, Walk
from agentctl_supervisor.workspace.clock import Beginning, beginning, is_since, since_ns
from agentctl_testkit import ORDINARY_UID
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.hostile_tree import nest
from agentctl_testkit.ticks import after_a_tick

EVERYTHING = 0
GENEROUS = Bounds(seconds=60)


def walked(
    directory: Path, since: int = EVERYTHING, bounds: Bounds = GENEROUS, **options: object
) -> Walk:
    walk = Walk(since, bounds, **options)  # type: ignore[arg-type]
    root = open_beneath.open_root(os.fsencode(directory))
    try:
        walk.run(root)
    finally:
        os.close(root)
    return walk


@pytest.fixture(params=["openat2", "component by component"])
def opening(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of opening beneath a directory: they promise the same."""
    if request.param != "openat2":
        monkeypatch.setattr(open_beneath, "_openat2", lambda *_: None)


def test_it_names_what_changed_and_not_what_did_not(tmp_path: Path, opening: None) -> None:
    """New files, written ones and the directories that they are in; the others not."""
    (tmp_path / "old").mkdir()
    for name in ("old/same", "old/written", "same"):
        (tmp_path / name).write_text("before")
    since = after_a_tick()

    (tmp_path / "old/written").write_text("after")
    (tmp_path / "made").mkdir()
    (tmp_path / "made/new").write_text("new")

    walk = walked(tmp_path, since)

    assert sorted(walk.changed) == [b"./", b"made/", b"made/new", b"old/written"]
    assert not walk.notes


def test_a_deleted_file_shows_as_its_directory(tmp_path: Path) -> None:
    """Nothing is left of it, but the directory that it was in has changed."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d/gone").write_text("")
    since = after_a_tick()

    (tmp_path / "d/gone").unlink()

    assert walked(tmp_path, since).changed == [b"d/"]


def test_a_change_of_rights_or_name_counts(tmp_path: Path) -> None:
    """What changes an inode is seen, though its content and mtime stay."""
    for name in ("mode", "moved"):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (1, 1))
    since = after_a_tick()

    (tmp_path / "mode").chmod(0o700)
    (tmp_path / "moved").rename(tmp_path / "here")

    assert sorted(walked(tmp_path, since).changed) == [b"./", b"here", b"mode"]


def test_a_change_right_after_the_beginning_is_seen(tmp_path: Path) -> None:
    """The kernel's clock for inodes is coarse; still nothing that comes after is missed."""
    for number in range(200):
        since = since_ns(beginning())
        (tmp_path / f"{number}").write_text("")

        assert is_since((tmp_path / f"{number}").stat().st_ctime_ns, since)


def test_a_file_system_with_whole_seconds_misses_nothing() -> None:
    """Its stamps are cut off, to the second or to two: they count from there on."""
    since = 1_700_000_001_500_000_000

    assert is_since(1_700_000_001_000_000_000, since)
    assert is_since(1_700_000_000_000_000_000, since)
    assert not is_since(1_699_999_999_000_000_000, since)
    assert not is_since(since - 1, since)


def test_a_clock_that_was_set_back_hides_nothing() -> None:
    """Inodes changed afterwards are stamped earlier; the bound goes back as far."""
    began = Beginning(coarse_ns=1_000_000_000_000, ahead_ns=500_000_000_000)

    assert since_ns(began, ahead_ns=400_000_000_000) == 900_000_000_000
    assert since_ns(began, ahead_ns=600_000_000_000) == began.coarse_ns
    assert since_ns(began, ahead_ns=500_000_000_000 - 1_000_000) == began.coarse_ns


def test_no_link_is_followed(tmp_path: Path, opening: None) -> None:
    """A link is named as one, whatever it leads to, and nothing behind it is."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "directory").symlink_to(outside)
    (inside / "file").symlink_to(outside / "secret")
    (inside / "self").symlink_to("self")

    walk = walked(inside)

    assert sorted(walk.changed) == [b"./", b"directory", b"file", b"self"]
    assert {special.kind for special in walk.specials} == {"symlink"}


def test_a_directory_that_becomes_a_link_is_not_followed(tmp_path: Path, opening: None) -> None:
    """Between the look at its name and the look into it, another run swaps it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("")
    inside = tmp_path / "inside"
    (inside / "d" / "e").mkdir(parents=True)

    def swap(_: int, name: str, __: os.stat_result) -> None:
        if name == "d":
            (inside / "d").rename(inside / "was-d")
            (inside / "d").symlink_to(outside)

    walk = walked(inside, on_entry=swap)

    assert b"d/secret" not in walk.changed
    assert b"d/" in walk.changed


def test_a_link_in_the_way_to_the_root_is_refused(tmp_path: Path, opening: None) -> None:
    """Somebody who may replace the workspace, or what is above it, does not choose ours."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real/below").mkdir()

    for path in ("link", "link/below"):
        with pytest.raises(OSError, match=r"symbolic links|Not a directory"):
            open_beneath.open_root(os.fsencode(tmp_path / path))


def test_what_is_no_file_is_not_opened_and_is_told(tmp_path: Path) -> None:
    """A FIFO, a socket, a device and a set-uid program: none is opened, each is flagged."""
    import socket

    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(tmp_path / "socket"))
    (tmp_path / "program").write_text("")
    (tmp_path / "program").chmod(0o4755)

    walk = walked(tmp_path)

    assert sorted(walk.specials) == [
        Special("fifo", b"fifo"),
        Special("setuid", b"program"),
        Special("socket", b"socket"),
    ]


def test_names_may_be_any_bytes(tmp_path: Path) -> None:
    """Newlines, escape sequences and what is no UTF-8 arrive as they are."""
    hostile = [b"a\nb", b"\x1b]0;title\x07", b"\xff\xfe", b" ", b"-rf"]
    for name in hostile:
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("")

    assert sorted(walked(tmp_path).changed) == sorted([b"./", *hostile])


def test_thousands_of_levels_end_the_walk_there(shallow_afterwards: Path) -> None:
    """Depth costs neither descriptors nor the stack; where it gets too deep, that is said."""
    nest(shallow_afterwards, 4000)
    (shallow_afterwards / "beside").write_text("")
    before = len(os.listdir("/proc/self/fd"))

    walk = walked(shallow_afterwards)

    assert b"beside" in walk.changed
    assert walk.notes == ["1 directories are nested too deeply"]
    assert len(os.listdir("/proc/self/fd")) == before


def test_so_many_files_are_cut_and_counted(tmp_path: Path) -> None:
    """A flood of files is bounded in what is kept and in what is looked at; both are said."""
    for number in range(300):
        (tmp_path / f"{number}").write_text("")

    kept = walked(tmp_path, bounds=Bounds(names=10, seconds=60))
    cut = walked(tmp_path, bounds=Bounds(entries=100, seconds=60))

    assert (len(kept.changed), kept.left_out, kept.notes) == (10, 291, [])
    assert cut.notes == ["there are more than 100 files"]
    assert len(cut.changed) + cut.left_out == 101


def test_long_names_are_bounded_in_bytes(tmp_path: Path) -> None:
    """The record must fit into the log, however long the names are."""
    for number in range(20):
        (tmp_path / f"{number:0200d}").write_text("")

    walk = walked(tmp_path, bounds=Bounds(name_bytes=1000, seconds=60))

    assert sum(map(len, walk.changed)) <= 1000
    assert len(walk.changed) + walk.left_out == 21


def test_time_is_bounded(tmp_path: Path) -> None:
    """Without any time left, it ends with the first few, and says so."""
    for number in range(300):
        (tmp_path / f"{number}").write_text("")

    walk = walked(tmp_path, bounds=Bounds(seconds=0))

    assert walk.notes == ["there was no time to look at everything"]
    assert len(walk.changed) < 100


def test_what_programs_fill_comes_last(tmp_path: Path) -> None:
    """A cut walk has seen a person's files, not only git's objects."""
    (tmp_path / ".git/objects").mkdir(parents=True)
    for number in range(200):
        (tmp_path / f".git/objects/{number}").write_text("")
    (tmp_path / "src/deep").mkdir(parents=True)
    (tmp_path / "src/deep/mine.py").write_text("")

    walk = walked(tmp_path, bounds=Bounds(entries=50, seconds=60))

    assert b"src/deep/mine.py" in walk.changed
    assert walk.notes


def test_what_git_obeys_further_down_is_told(tmp_path: Path) -> None:
    """A hook of a nested repository, by the name that git obeys; not what else is in there."""
    obeyed = [b".git", b".git/hooks", b".git/config"]
    (tmp_path / "vendor/dep/.git/hooks/deep").mkdir(parents=True)
    (tmp_path / "vendor/dep/.git/hooks/deep/post-merge").write_text("")
    (tmp_path / "vendor/dep/.git/index").write_text("")
    (tmp_path / "vendor/.bashrc").write_text("nobody reads this one")

    walk = walked(tmp_path, obeyed=obeyed)

    assert list(walk.nested) == [b"vendor/dep/.git/hooks"]


def test_a_git_file_and_a_repository_of_any_name_are_told(tmp_path: Path) -> None:
    """Both lead the person's git to the settings and hooks that the run made."""
    (tmp_path / "sub/made/objects").mkdir(parents=True)
    (tmp_path / "sub/made/hooks").mkdir()
    (tmp_path / "sub/made/HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "sub/made/config").write_text("")
    (tmp_path / "sub/made/description").write_text("")
    (tmp_path / "sub/.git").write_text("gitdir: made\n")
    (tmp_path / "other/config").mkdir(parents=True)

    walk = walked(tmp_path, obeyed=[b".git", b".git/hooks", b".git/config"])

    assert sorted(walk.nested) == [b"sub/.git", b"sub/made/config", b"sub/made/hooks"]


def test_what_packages_bring_along_is_not_told_but_repositories_are(tmp_path: Path) -> None:
    """Thousands of packages have an editor's settings in them; git obeys a repository anywhere."""
    (tmp_path / "node_modules/p/.vscode").mkdir(parents=True)
    (tmp_path / "node_modules/p/.git/hooks").mkdir(parents=True)
    (tmp_path / "src/.vscode").mkdir(parents=True)

    walk = walked(tmp_path, obeyed=[b".vscode", b".git/hooks"])

    assert sorted(walk.nested) == [b"node_modules/p/.git/hooks", b"src/.vscode"]


def test_names_that_find_no_room_are_counted(tmp_path: Path) -> None:
    """A flood of them hides none without a word."""
    for number in range(6):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}/CLAUDE.md").write_text("")

    walk = walked(tmp_path, bounds=Bounds(specials=4, seconds=60), obeyed=[b"CLAUDE.md"])

    assert len(walk.nested) == 4
    assert walk.notes == ["2 more changes of names that programs obey"]


@needs(Capability.ROOT)
def test_a_directory_that_cannot_be_read_is_counted(tmp_path: Path) -> None:
    """An ordinary user's look is not complete where a mode is in its way, and says so."""
    (tmp_path / "closed").mkdir()
    (tmp_path / "open").mkdir()
    os.chown(tmp_path, ORDINARY_UID, ORDINARY_UID)
    tmp_path.chmod(0o755)
    (tmp_path / "closed").chmod(0)

    walk = Walk(EVERYTHING, GENEROUS)
    root = open_beneath.open_root(os.fsencode(tmp_path))
    os.seteuid(ORDINARY_UID)
    try:
        walk.run(root)
    finally:
        os.seteuid(0)
        os.close(root)

    assert walk.notes == ["1 directories cannot be read"]
    assert b"open/" in walk.changed


@needs(Capability.ROOT)
@pytest.mark.parametrize("kind", ["-t tmpfs none", "--bind {outside}"])
def test_another_mount_is_not_entered(tmp_path: Path, kind: str) -> None:
    """What is mounted there is somebody else's, on the same file system or on another."""
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    (inside / "mounted").mkdir(parents=True)
    script = (
        "import os, sys\n"
        "from agentctl_supervisor.filesystem.open_beneath import open_root\n"
        "from agentctl_supervisor.workspace.changes import Walk\n"
        f"open({os.fspath(inside / 'mounted/secret')!r}, 'w').close()\n"
        "walk = Walk(0)\n"
        f"walk.run(open_root({os.fsencode(inside)!r}))\n"
        "print(walk.changed, walk.notes)\n"
    )
    mount = f"mount {kind.format(outside=outside)} {inside}/mounted"

    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{mount} && exec "$0" -c "$1"', sys.executable, script],
        check=True,
        capture_output=True,
        text=True,
    )

    assert done.stdout.strip() == ("[b'./', b'mounted/'] ['1 mounts beneath it were not entered']")
