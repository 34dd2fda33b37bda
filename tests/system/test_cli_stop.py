"""`agentctl stop`, `kill`, `ps` and `show` on runs that live in another process."""

import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from agentctl_supervisor.client import Client
from agentctl_testkit import AgentctlHome
from agentctl_testkit.cli import SLEEPER, STUBBORN, Foregrounds
from agentctl_testkit.clock import Stopwatch


@pytest.fixture
def runs(home: AgentctlHome, marker: str) -> Iterator[Foregrounds]:
    """Runs of this test."""
    with Foregrounds(home, marker) as foregrounds:
        yield foregrounds


@pytest.fixture
def sleeper(runs: Foregrounds) -> "subprocess.Popen[bytes]":
    """A run named ``demo`` that only sleeps."""
    return runs.up(SLEEPER, "--name", "demo")


def test_a_plain_program_is_stopped_within_a_second(home: AgentctlHome, runs: Foregrounds) -> None:
    """It has no channel to be asked by, so that no grace is spent on asking."""
    times: list[float] = []
    # On a busy machine the interpreter's own start can take most of the second: a command
    # that only looks shows how much.
    while not times or (min(times) >= 1 and len(times) < 3):
        process = runs.up(SLEEPER, "--name", "demo")
        began = time.monotonic()
        home.run("ps")
        looked = time.monotonic()
        done = home.run("stop", "demo", "--reason", "enough")
        times.append((time.monotonic() - looked) - (looked - began))

        assert runs.left() == []
        assert done.code == 0
        assert done.out.startswith("demo: stopped by uid ")
        assert done.out.endswith("1 of 1 process gone\n")
        process.communicate()
        assert process.returncode == 143
        report = home.run("show", "demo", "-o", "json").json()
        assert (report["result"], report["reason"]) == ("stopped", "user")
        assert "(enough)" in report["detail"]
    assert min(times) < 1


def test_a_second_stop_is_no_error(home: AgentctlHome, sleeper: "subprocess.Popen[bytes]") -> None:
    """It says what became of the run."""
    home.run("stop", "demo")
    sleeper.communicate()
    for command in ("stop", "kill"):
        done = home.run(command, "demo")
        assert (done.code, done.out) == (0, "demo: already finished: stopped\n")


def test_kill_does_not_ask(home: AgentctlHome, runs: Foregrounds) -> None:
    """The ladder has one rung, and the foreground says 137."""
    process = runs.up(STUBBORN, "--name", "demo")
    done = home.run("kill", "demo", "-o", "json")
    process.communicate()

    assert process.returncode == 137
    assert runs.left() == []
    (entry,) = done.json()["runs"]
    assert (entry["already"], entry["gone"]) == (False, True)
    assert [step["step"] for step in entry["report"]["ladder"]] == ["sigkill"]


def test_a_run_is_found_by_name_id_and_the_beginning_of_either(
    home: AgentctlHome, sleeper: "subprocess.Popen[bytes]"
) -> None:
    """And `ps` lists it while it lives, `ps -a` afterwards."""
    (run_id,) = home.run("ps", "-q").out.split()
    for ref in ("demo", "dem", run_id, run_id[:6]):
        assert home.run("show", ref, "-o", "json").json()["id"] == run_id
    (row,) = home.run("ps", "-o", "json").json()
    assert (row["id"], row["name"], row["state"], row["result"]) == (
        *(run_id, "demo", "running", None),
    )
    assert home.run("stop", run_id[:6]).code == 0
    sleeper.communicate()
    assert home.run("ps", "-q").out == ""
    assert home.run("ps", "-aq").out.split() == [run_id]
    assert home.run("ps", "-a").out.splitlines()[1].split()[:3] == ["demo", run_id, "stopped"]


def test_several_runs_are_stopped_side_by_side(home: AgentctlHome, runs: Foregrounds) -> None:
    """Two stubborn ones take no longer than one; an unknown one does not hinder them."""
    processes = [runs.up(STUBBORN, "--name", name) for name in ("one", "two")]
    since = Stopwatch()
    done = home.run("stop", "one", "nosuch", "two", "--term-grace", "4s")
    elapsed_s, took_s = since.elapsed_s, since.uncontended_s

    for process in processes:
        process.communicate()
    assert runs.left() == []
    assert done.code == 4
    assert sorted(line.partition(":")[0] for line in done.out.splitlines()) == ["one", "two"]
    assert elapsed_s > 4
    assert took_s < 8


def test_all_live_runs_are_stopped_by_one_command(home: AgentctlHome, runs: Foregrounds) -> None:
    """`stop --all` leaves nothing."""
    processes = [runs.up(SLEEPER, "--name", name) for name in ("one", "two")]
    done = home.run("stop", "--all")
    for process in processes:
        process.communicate()
    assert done.code == 0
    assert len(done.out.splitlines()) == 2
    assert runs.left() == []


def test_an_ambiguous_beginning_is_refused(home: AgentctlHome, runs: Foregrounds) -> None:
    """Nothing is stopped by guess."""
    processes = [runs.up(SLEEPER, "--name", name) for name in ("dev1", "dev2")]
    done = home.run("stop", "dev")
    assert done.code == 2
    assert [line.partition(":")[0] for line in done.err.splitlines()] == ["error", "hint"]
    assert len(home.run("ps", "-q").out.split()) == 2
    home.run("kill", "--all")
    for process in processes:
        process.communicate()


def test_a_mistyped_name_gets_a_guess(
    home: AgentctlHome, sleeper: "subprocess.Popen[bytes]"
) -> None:
    """Did you mean the one that is there?"""
    done = home.run("stop", "dmeo")
    assert done.code == 4
    assert "demo" in done.err.splitlines()[1]
    home.run("kill", "demo")
    sleeper.communicate()


def test_fifty_threads_stop_one_run(
    home: AgentctlHome, sleeper: "subprocess.Popen[bytes]", runs: Foregrounds
) -> None:
    """One client, fifty threads, one outcome."""
    client = Client(home.root)
    (report,) = client.runs()
    outcomes = []
    threads = [
        threading.Thread(target=lambda: outcomes.append(client.stop("demo"))) for _ in range(50)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sleeper.communicate()

    assert len(outcomes) == 50
    assert {outcome.report.id for outcome in outcomes} == {report.id}
    assert {outcome.report.result for outcome in outcomes} == {"stopped"}
    assert len({outcome.report.ended_at for outcome in outcomes}) == 1
    assert all(outcome.gone for outcome in outcomes)
    assert runs.left() == []
