"""Removing what a run made, whatever it made of it."""

import os
from pathlib import Path

import pytest

from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor.store.run_directory import Home
from agentctl_supervisor.workspace.own_directories import remove_private
from agentctl_supervisor.workspace.removal import remove_tree
from agentctl_testkit import ORDINARY_UID, let_everybody_in
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.hostile_tree import nest

LONG_S = 60.0


def test_a_tree_is_removed(tmp_path: Path) -> None:
    """Files, directories, links, FIFOs and sockets go; nothing is opened that could block."""
    tree = tmp_path / "tree"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/b/file").write_text("")
    (tree / "a/link").symlink_to(tmp_path)
    os.mkfifo(tree / "fifo")

    assert remove_tree(tree, LONG_S)
    assert not tree.exists()
    assert remove_tree(tree, LONG_S), "what is gone is gone"


def test_what_a_link_leads_to_stays(tmp_path: Path) -> None:
    """Neither a link in the tree nor the tree itself as a link takes anything along."""
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").write_text("")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/link").symlink_to(kept)
    (tmp_path / "link").symlink_to(kept)

    assert remove_tree(tmp_path / "tree", LONG_S)
    assert remove_tree(tmp_path / "link", LONG_S)
    assert (kept / "file").exists()


def test_nesting_is_no_obstacle(shallow_afterwards: Path) -> None:
    """4,000 levels: more than paths, descriptors or the stack would take."""
    (shallow_afterwards / "tree").mkdir()
    nest(shallow_afterwards / "tree", 4000)

    assert remove_tree(shallow_afterwards / "tree", LONG_S)
    assert list(shallow_afterwards.iterdir()) == []


def test_names_that_look_like_ours_are_no_obstacle(tmp_path: Path) -> None:
    """A tree that guesses how directories are called on their way up is removed, too."""
    tree = tmp_path / "tree"
    for number in range(20):
        (tree / f".going-{number}/below/more").mkdir(parents=True)
        (tree / f".going-{number}/below/file").write_text("")
        (tree / f"x/.going-{number}").mkdir(parents=True)
        (tree / f"x/.going-{number}/file").write_text("")
        (tree / f".going-{number + 20}").write_text("")

    assert remove_tree(tree, LONG_S)
    assert not tree.exists()


@needs(Capability.ROOT)
def test_modes_are_no_obstacle_to_their_owner(tmp_path: Path) -> None:
    """An ordinary user removes what its own run closed to everybody."""
    tree = tmp_path / "tree"
    (tree / "closed/deeper/still").mkdir(parents=True)
    (tree / "closed/deeper/still/file").write_text("")
    for path in (tree, *tree.rglob("*"), tmp_path):
        os.chown(path, ORDINARY_UID, ORDINARY_UID)
    for name in ("closed/deeper/still", "closed/deeper", "closed", ""):
        (tree / name).chmod(0)
    let_everybody_in(tmp_path)

    os.seteuid(ORDINARY_UID)
    try:
        gone = remove_tree(tree, LONG_S)
    finally:
        os.seteuid(0)

    assert gone
    assert not tree.exists()


def test_time_is_bounded_and_the_rest_can_be_removed_later(tmp_path: Path) -> None:
    """Many files take a while: whoever has none gives up, and the next one goes on."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(500):
        (tree / f"{number}").write_text("")

    assert not remove_tree(tree, 0.0)
    assert tree.exists()
    assert remove_tree(tree, LONG_S)


def test_only_what_was_for_its_life_is_removed_with_a_run(tmp_path: Path) -> None:
    """Its /tmp and its home go, a private workspace stays with its log."""
    for name in ("tmp", "home", "workspace"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("")
    (tmp_path / "spec").write_text("")

    assert remove_private(tmp_path)
    assert sorted(os.listdir(tmp_path)) == ["spec", "workspace"]


@pytest.mark.parametrize("where", ["tmp", "home"])
def test_whoever_finishes_a_dead_run_removes_what_was_for_its_life(
    tmp_path: Path, where: str
) -> None:
    """Its supervisor died before it could."""
    from agentctl_supervisor.recover import recovery

    home = Home(tmp_path / "home", {})
    home.runs_path.mkdir(parents=True)
    run = home.create_run(RunSpec(argv=["x"], sandbox=Sandbox.STANDARD))
    (run.path / where / "deep").mkdir(parents=True)
    run.unlock()

    recovery.current(run)

    assert not (run.path / where).exists()


def test_prune_removes_a_run_whatever_is_in_its_workspace(shallow_afterwards: Path) -> None:
    """A private workspace goes with its run, and counts in what the run takes."""
    from agentctl_supervisor.recover import recovery
    from agentctl_supervisor.store import pruning

    home = Home(shallow_afterwards / "home", {})
    home.runs_path.mkdir(parents=True)
    run = home.create_run(RunSpec(argv=["x"], sandbox=Sandbox.STRICT))
    (run.path / "workspace").mkdir()
    run.unlock()
    recovery.current(run)
    small = pruning.size_of(home, run.id)
    (run.path / "workspace/big").write_bytes(b"x" * 1_000_000)
    nest(run.path / "workspace", 2000)

    assert pruning.size_of(home, run.id) > small + 1_000_000
    assert pruning.remove(home, run.id)
    assert not run.path.exists()
