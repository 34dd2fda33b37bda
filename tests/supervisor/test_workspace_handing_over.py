"""Files of a run with a uid of its own go to the owner of its workspace, and nothing else does."""

import os
import stat
from pathlib import Path

import pytest

from agentctl_supervisor.filesystem.open_beneath import open_root
from agentctl_supervisor.processes.own_uids import OwnUids, uids_of
from agentctl_supervisor.workspace.handing_over import HandingOver, hand_over
from agentctl_testkit.capabilities import Capability, needs

pytestmark = needs(Capability.ROOT)

RUN = 1_073_741_900
OWNER = 1234
STRANGER = 4321


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    directory = tmp_path / "workspace"
    directory.mkdir()
    os.chown(directory, OWNER, OWNER)
    return directory


def owner(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_uid, found.st_gid


def make(path: Path, uid: int = RUN) -> Path:
    path.write_text("")
    os.chown(path, uid, uid)
    return path


def test_what_is_the_runs_becomes_the_owners(workspace: Path) -> None:
    """Files, directories, links and FIFOs at any depth."""
    (workspace / "d/e").mkdir(parents=True)
    os.mkfifo(workspace / "fifo")
    (workspace / "link").symlink_to("/etc/passwd")
    made = [workspace / name for name in ("d", "d/e", "fifo", "link")]
    for path in made:
        os.chown(path, RUN, RUN, follow_symlinks=False)
    made.append(make(workspace / "d/e/file"))

    assert hand_over([os.fsencode(workspace)], [RUN])
    assert {owner(path) for path in made} == {(OWNER, OWNER)}
    assert owner(Path("/etc/passwd")) == (0, 0)


def test_what_is_somebody_elses_stays(workspace: Path) -> None:
    """Only the run's uid gives anything away, not a stranger's nor root's."""
    theirs = make(workspace / "theirs", STRANGER)
    roots = make(workspace / "roots", 0)

    hand_over([os.fsencode(workspace)], [RUN])

    assert (owner(theirs), owner(roots)) == ((STRANGER, STRANGER), (0, 0))


def test_a_program_does_not_come_to_run_as_the_owner(workspace: Path) -> None:
    """The set-uid and set-gid bits go before the file does."""
    program = make(workspace / "program")
    program.chmod(0o6755)
    (workspace / "shared").mkdir()
    os.chown(workspace / "shared", RUN, RUN)
    (workspace / "shared").chmod(0o2775)
    # Without the right for the group to execute, chown(2) itself would leave this bit.
    odd = make(workspace / "odd")
    odd.chmod(0o2644)

    hand_over([os.fsencode(workspace)], [RUN])

    assert stat.S_IMODE(program.lstat().st_mode) == 0o755
    assert stat.S_IMODE((workspace / "shared").lstat().st_mode) == 0o775
    assert stat.S_IMODE(odd.lstat().st_mode) == 0o644


def test_a_name_that_is_swapped_gives_nothing_else_away(workspace: Path) -> None:
    """Between the look and the change, the name comes to mean a stranger's file."""
    mine, theirs = make(workspace / "name"), make(workspace / "theirs", STRANGER)
    seen = mine.lstat()
    theirs.rename(mine)
    root = open_root(os.fsencode(workspace))
    giving = HandingOver([RUN], OWNER, OWNER)

    giving.on_entry(root, "name", seen)

    os.close(root)
    assert owner(mine) == (STRANGER, STRANGER)
    assert giving.given == 0


def test_what_is_outside_stays_the_runs(workspace: Path, tmp_path: Path) -> None:
    """A link out of the workspace takes nothing along."""
    outside = make(tmp_path / "outside")
    (workspace / "link").symlink_to(outside)

    hand_over([os.fsencode(workspace)], [RUN])

    assert owner(outside) == (RUN, RUN)


def test_a_workspace_of_the_runs_own_stays_as_it_is(workspace: Path) -> None:
    """There is nobody to give it to."""
    os.chown(workspace, RUN, RUN)
    made = make(workspace / "file")

    assert hand_over([os.fsencode(workspace)], [RUN])
    assert owner(made) == (RUN, RUN)


def test_all_uids_of_a_dead_supervisor_are_known() -> None:
    """Whoever finishes its runs knows only its pid."""
    uids = OwnUids(4_194_303)
    taken = {uids.take() for _ in uids_of(4_194_303)}

    assert taken == uids_of(4_194_303)
    assert not taken & uids_of(4_194_302)
