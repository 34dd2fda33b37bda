"""`agentctl prune` and the index of finished runs: what goes, what stays, what is still true."""

import os
import pty
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from agentctl_supervisor.client import Client
from agentctl_supervisor.store.finished_index import INDEX_NAME, Summary
from agentctl_supervisor.store.pruning import Candidate, Wanted, chosen
from agentctl_supervisor.store.run_directory import Home
from agentctl_testkit import AgentctlHome
from agentctl_testkit.held import HeldRun

_NOW = 1_700_000_000.0


def _finished(home: AgentctlHome, *names: str) -> list[str]:
    """Finished runs of these names, the oldest first."""
    ids = []
    for name in names:
        with HeldRun(home, name) as run:
            ids.append(run.id)
    return ids


def _kept(home: AgentctlHome) -> list[str]:
    return sorted(os.listdir(home.root / "runs"))


def _index(home: AgentctlHome) -> Path:
    return home.root / INDEX_NAME


def _candidate(age_s: float, size: int) -> Candidate:
    then = _NOW - age_s
    return Candidate(Summary(1, f"r-{age_s}", None, None, None, 0, None, then, then, "x"), size)


@pytest.mark.parametrize(
    ("wanted", "going"),
    [
        (Wanted(), []),
        (Wanted(before_s=_NOW - 25), [40, 30]),
        (Wanted(keep=3), [40]),
        (Wanted(keep=0), [40, 30, 20, 10]),
        (Wanted(keep=9), []),
        (Wanted(max_bytes=250), [40, 30]),
        (Wanted(max_bytes=400), []),
        (Wanted(max_bytes=0), [40, 30, 20, 10]),
        (Wanted(before_s=_NOW - 35, keep=2, max_bytes=100), [40, 30, 20]),
    ],
)
def test_a_run_goes_if_any_reason_says_so(wanted: Wanted, going: Sequence[int]) -> None:
    """Too old, too many, too big; the oldest first."""
    runs = [_candidate(age, 100) for age in (40, 30, 20, 10)]
    assert [one.run.id for one in chosen(runs, wanted)] == [f"r-{age}" for age in going]


def test_only_finished_runs_go_with_their_names(home: AgentctlHome) -> None:
    """The live one stays, whatever is asked for; a name stays while its run does."""
    old, newer = _finished(home, "old", "newer")
    with HeldRun(home, "live") as live:
        done = home.run("prune", "--keep", "1")
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines()[0].split()[0] == old
        assert done.out.splitlines()[-1].startswith("deleted 1 run, ")
        assert _kept(home) == sorted([newer, live.id])
        assert sorted(os.listdir(home.root / "names")) == ["live", "newer"]
        told = home.run("prune", "--older", "0", "--max-size", "0", "-o", "json").json()
        assert [run["id"] for run in told["runs"]] == [newer]
        assert (told["schema"], told["dry_run"], told["errors"]) == (1, False, [])
        assert _kept(home) == [live.id]
        assert home.run("ps", "-aq").out.split() == [live.id]
    assert home.run("show", "old").code == 4


def test_on_a_terminal_nothing_is_deleted_without_yes(home: AgentctlHome) -> None:
    """A list of what would go, and how to have it go."""
    (run,) = _finished(home, "demo")
    said = _on_terminal(home, "prune", "--keep", "0")
    assert f"{run} " in said
    assert "would delete 1 run" in said
    assert "add --yes" in said
    assert _kept(home) == [run]
    assert "would delete 1 run" in home.run("prune", "--keep", "0", "--dry-run").out
    assert _kept(home) == [run]
    assert "deleted 1 run" in _on_terminal(home, "prune", "--keep", "0", "--yes")
    assert _kept(home) == []


def _on_terminal(home: AgentctlHome, *arguments: str) -> str:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        home.argv(*arguments), env=home.environment, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b""
    try:
        while more := os.read(ours, 4096):
            said += more
    except OSError:
        pass  # nobody is left on the other side
    os.close(ours)
    assert process.wait() == 0
    return said.decode()


def test_no_link_is_followed(home: AgentctlHome, tmp_path: Path) -> None:
    """What an agent put into its run's directory, or in the place of a run, leads nowhere."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    (run,) = _finished(home, "demo")
    (home.root / "runs" / run / "link").symlink_to(precious)
    (home.root / "runs" / run / "deep").mkdir()
    (home.root / "runs" / run / "deep" / "link").symlink_to(precious)
    (home.root / "runs" / "r-aaaaaaaa").symlink_to(precious)
    (home.root / "runs" / ".pruned-r-bbbbbbbb").symlink_to(precious)
    home.run("prune", "--keep", "0")
    assert not (home.root / "runs" / run).exists()
    assert (precious / "file").exists()


def test_a_prune_that_was_cut_short_is_finished_by_the_next(home: AgentctlHome) -> None:
    """Such a run is in no list, and its remains go."""
    (run,) = _finished(home, "demo")
    os.rename(home.root / "runs" / run, home.root / "runs" / f".pruned-{run}")
    assert home.run("ps", "-aq").out == ""
    home.run("prune", "--keep", "5")
    assert _kept(home) == []
    assert os.listdir(home.root / "names") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "which runs are to go?"),
        (["--older", "soon"], "not a duration"),
        (["--keep", "-1"], "--keep"),
        (["--keep", "x"], "not a number"),
        (["--max-size", "2X"], "not a size"),
        (["--dry-run", "--yes", "--keep", "0"], "exclude each other"),
        (["demo"], "unexpected argument"),
        (["--kep", "0"], "did you mean --keep?"),
    ],
)
def test_a_slip_deletes_nothing(home: AgentctlHome, arguments: list[str], said: str) -> None:
    """One error with exit code 2."""
    done = home.run("prune", *arguments)
    assert (done.code, said in done.err, done.stdout) == (2, True, b"")


# --- the index that `ps -a` reads ---------------------------------------------


def _listed(home: AgentctlHome) -> dict[str, str]:
    return {
        row.id: f"{row.name} {row.state} {row.result} {row.exit_code}"
        for row in Client(home.root).listed(finished=True)
    }


def test_a_list_says_the_same_with_and_without_the_index(home: AgentctlHome) -> None:
    """It is filled as runs finish, made anew when it is gone, and never needed."""
    for code in (0, 3):
        with HeldRun(home, f"n{code}") as run:
            run.finish(code)
    with HeldRun(home, "live"):
        from_index = _listed(home)
        assert sorted(from_index.values()) == [
            "live running None None",
            "n0 finished succeeded 0",
            "n3 finished failed 3",
        ]
        assert _index(home).read_bytes().count(b'"r-') == 2
        _index(home).unlink()
        assert _listed(home) == from_index
        assert _index(home).read_bytes().count(b'"r-') == 2
        _index(home).unlink()
        _index(home).mkdir()  # nothing can be written there
        assert _listed(home) == from_index


@pytest.mark.parametrize("damage", ["flip", "tear", "garbage", "glue", "lie"])
def test_a_damaged_index_never_shows_what_is_not_so(home: AgentctlHome, damage: str) -> None:
    """Whatever bytes it has, the list is that of the reports."""
    _finished(home, "one", "two", "three")
    truth = _listed(home)
    data = _index(home).read_bytes()
    variants = {
        "flip": [_flipped(data, at) for at in range(0, len(data), 7)],
        "tear": [data[:at] for at in range(0, len(data), 11)],
        "garbage": [b"\xff" * 100 + data, data + b"\n00000000[]", data.replace(b"\n", b"")],
        "glue": [data[: len(data) // 2] + data],
        "lie": [data.replace(b"succeeded", b"failed")],
    }[damage]
    for variant in variants:
        _index(home).write_bytes(variant)
        assert _listed(home) == truth


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :]


def test_an_entry_does_not_outlive_its_directory(home: AgentctlHome) -> None:
    """A run that was removed by hand is not listed; another of the same id is looked at anew."""
    one, two = _finished(home, "one", "two")
    runs = home.root / "runs"
    for path in (runs / one).iterdir():
        path.unlink()
    (runs / one).rmdir()
    assert list(_listed(home)) == [two]
    os.rename(runs / two, runs / "aside")
    (runs / two).mkdir()
    os.rename(runs / "aside" / "spec", runs / two / "spec")
    os.rename(runs / "aside" / "00000001.log", runs / two / "00000001.log")
    with open(runs / two / "report", "w") as report:
        report.write("{")
    damaged: list[str] = []
    Client(home.root).listed(finished=True, on_damaged=lambda error: damaged.append(str(error)))
    assert len(damaged) == 1
    (runs / two / "report").unlink()


def test_an_index_of_many_lines_is_written_anew(home: AgentctlHome) -> None:
    """It does not grow with runs that are long gone."""
    _finished(home, "one", "two")
    truth = _listed(home)
    _index(home).write_bytes(_index(home).read_bytes() * 400)
    assert _listed(home) == truth
    assert _index(home).stat().st_size < 2000
    assert _listed(home) == truth
    assert len(Home.open({"AGENTCTL_HOME": str(home.root)}, create=False).finished.read()) == 2
