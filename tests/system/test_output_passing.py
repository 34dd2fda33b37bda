"""The run's output arrives in order and whole, as if agentctl were not in between."""

import fcntl
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentctl_supervisor.run.launch_pipes import OutputPipes
from agentctl_testkit import AgentctlHome
from agentctl_testkit.capabilities import Capability, needs

_TURNS = "for i in 1 2 3 4 5 6 7 8 9; do echo $i; echo $i >&2; done"
_IN_TURN = "".join(f"{i}\n{i}\n" for i in range(1, 10)).encode()


def _passed(home: AgentctlHome, *words: str, **streams: Any) -> int:
    done = subprocess.run(
        home.argv("run", "-q", "--name", "r", "--", *words),
        env=home.environment,
        stdin=subprocess.DEVNULL,
        check=False,
        **streams,
    )
    return done.returncode


@pytest.mark.parametrize("into", ["file", "pipe"])
def test_one_place_for_both_streams_keeps_their_order(
    home: AgentctlHome, tmp_path: Path, into: str
) -> None:
    """As ``> both 2>&1`` gives it without us; so do the log and ``logs``."""
    if into == "file":
        with (tmp_path / "both").open("wb") as both:
            assert _passed(home, "sh", "-c", _TURNS, stdout=both, stderr=both) == 0
        assert (tmp_path / "both").read_bytes() == _IN_TURN
    else:
        done = subprocess.run(
            home.argv("run", "-q", "--name", "r", "--", "sh", "-c", _TURNS),
            env=home.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=True,
        )
        assert done.stdout == _IN_TURN
    assert home.run("logs", "r").stdout == _IN_TURN
    records = [json.loads(line) for line in home.run("events", "r").out.splitlines()]
    outputs = [record for record in records if record["type"] == "output"]
    assert all(record["both"] for record in outputs)
    stamped = home.run("logs", "--timestamps", "r").out.splitlines()
    assert {line.split()[1] for line in stamped} == {"all"}


def test_two_places_are_two_streams(home: AgentctlHome, tmp_path: Path) -> None:
    """Each gets what is its own, and the log tells them apart."""
    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        assert _passed(home, "sh", "-c", "echo o; echo e >&2", stdout=out, stderr=err) == 0
    assert (tmp_path / "out").read_bytes() == b"o\n"
    assert (tmp_path / "err").read_bytes() == b"e\n"
    told = home.run("events", "r").out
    assert '"stream":"stderr"' in told.replace(" ", "")
    assert '"both"' not in told


def test_output_that_could_not_be_written_reaches_the_exit_code(home: AgentctlHome) -> None:
    """The run itself went well, but whoever reads the file has not got what it wrote."""
    with open("/dev/full", "wb") as full:
        assert _passed(home, "echo", "hi", stdout=full, stderr=subprocess.DEVNULL) == 125
        assert _passed(home, "sh", "-c", "echo hi; exit 3", stdout=full) == 3
    assert home.run("logs", "r").out == "hi\n"


def test_a_reader_that_goes_away_is_no_failure(home: AgentctlHome) -> None:
    """``agentctl run ... | head -1``: the run gets SIGPIPE as it would without us."""
    line = " ".join(home.argv("run", "-q", "--", "yes"))
    done = subprocess.run(
        ["sh", "-c", f"{line} | head -1"], env=home.environment, stdout=subprocess.PIPE, check=True
    )
    assert done.stdout == b"y\n"


@needs(Capability.NODE)
def test_a_file_loses_nothing_that_a_pipe_would(home: AgentctlHome, tmp_path: Path) -> None:
    """Node writes to a pipe without waiting, and what does not fit is lost when it exits."""
    program = "process.stdout.write('x'.repeat(900000)); process.exit(0)"
    with (tmp_path / "out").open("wb") as out:
        assert _passed(home, "node", "-e", program, stdout=out, stderr=subprocess.DEVNULL) == 0
    assert (tmp_path / "out").stat().st_size == 900_000
    assert len(home.run("logs", "r").stdout) == 900_000


def test_a_pipe_is_as_large_as_this_user_may_have_it() -> None:
    """More is asked for than most may have: what is refused is halved until it is not."""
    reading, writing = os.pipe()
    size = fcntl.fcntl(reading, fcntl.F_GETPIPE_SZ)
    OutputPipes().enlarge(reading)
    assert fcntl.fcntl(reading, fcntl.F_GETPIPE_SZ) == size
    OutputPipes(capacity=64 << 20).enlarge(reading)
    assert fcntl.fcntl(reading, fcntl.F_GETPIPE_SZ) > size
    os.close(reading)
    os.close(writing)
