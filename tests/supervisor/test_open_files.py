"""Which files a run's processes have open for writing, looked at from outside."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_protocol.spawning import ProcessIdentity
from agentctl_supervisor.processes.open_files import MAX_BYTES, OpenFiles, open_for_writing
from agentctl_supervisor.processes.process_tree import identity_of
from agentctl_testkit import AGENTS, ORDINARY_UID
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.clock import Stopwatch


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        process.kill()
        process.communicate()


def identity(process: "subprocess.Popen[str]") -> ProcessIdentity:
    found = identity_of(process.pid)
    assert found is not None
    return found


def run(started: "list[subprocess.Popen[str]]", directory: Path, *command: str) -> ProcessIdentity:
    process = subprocess.Popen(
        [sys.executable, "-S", *command], cwd=directory, stdout=subprocess.PIPE, text=True
    )
    started.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return identity(process)


def look(*processes: ProcessIdentity, roots: tuple[Path, ...], budget_s: float = 60) -> OpenFiles:
    return open_for_writing(processes, [os.fsencode(root) for root in roots], budget_s)


def test_what_is_open_for_writing_is_told(
    started: "list[subprocess.Popen[str]]", tmp_path: Path
) -> None:
    """Not what is open for reading, nor what is deleted; a FIFO is sorted out later."""
    agent = run(started, tmp_path, os.fspath(AGENTS / "half_writer.py"))

    assert look(agent, roots=(tmp_path,)) == OpenFiles(("half", "pipe", "two\nlines"))
    assert look(agent, roots=(tmp_path / "other",)) == OpenFiles()
    assert look(agent, roots=(tmp_path / "other", tmp_path)).paths[0] == f"{tmp_path}/half"


def test_a_neighbour_with_a_longer_name_is_not_beneath(
    started: "list[subprocess.Popen[str]]", tmp_path: Path
) -> None:
    """``/work`` is not above ``/workshop``."""
    (tmp_path / "workshop").mkdir()
    agent = run(started, tmp_path / "workshop", os.fspath(AGENTS / "half_writer.py"))

    assert look(agent, roots=(tmp_path / "work",)) == OpenFiles()


MANY = """
import os, sys, time
held = [os.open(f"{number:0250d}", os.O_WRONLY | os.O_CREAT) for number in range(400)]
print("up", flush=True)
time.sleep(60)
"""


def test_many_files_are_bounded_and_counted(
    started: "list[subprocess.Popen[str]]", tmp_path: Path
) -> None:
    """What is told fits into the reserve of a log on a full disk; the rest is a number."""
    agent = run(started, tmp_path, "-c", MANY)

    told = look(agent, roots=(tmp_path,))

    assert sum(map(len, told.paths)) <= MAX_BYTES
    assert told.unread == f"{400 - len(told.paths)} more files were open for writing"


def test_the_look_holds_up_no_kill(started: "list[subprocess.Popen[str]]", tmp_path: Path) -> None:
    """Its time is bounded, however many processes there are; whom it did not come to, it says."""
    agent = run(started, tmp_path, "-c", MANY)
    since = Stopwatch()

    told = look(*[agent] * 1000, roots=(tmp_path,), budget_s=0.02)

    assert since.uncontended_s < 1.0, "it took as long as there is to look at"
    assert "of 1000 processes were asked what they have open" in told.unread


def test_who_is_gone_has_nothing_open(tmp_path: Path) -> None:
    """A process that ended meanwhile is no error."""
    process = subprocess.Popen(["true"], text=True)
    gone = identity(process)
    process.wait()

    assert look(gone, roots=(tmp_path,)) == OpenFiles()


@needs(Capability.ROOT)
def test_who_does_not_show_is_counted(
    started: "list[subprocess.Popen[str]]", tmp_path: Path
) -> None:
    """An ordinary user may not look at another's process, and says so."""
    agent = run(started, tmp_path, os.fspath(AGENTS / "half_writer.py"))
    os.seteuid(ORDINARY_UID)
    try:
        told = look(agent, roots=(tmp_path,))
    finally:
        os.seteuid(0)

    assert told == OpenFiles((), "1 processes do not show what they have open")
