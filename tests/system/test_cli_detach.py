"""`agentctl run -d`: the run goes on without whoever started it, and nothing of theirs is held."""

import json
import os
import pty
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentctl_testkit import (
    MARKER_VARIABLE,
    AgentctlHome,
    Finished,
    alive,
    descriptors,
    kill_all,
    wait_until_gone,
)

_WAITS = "echo up; exec sleep 100"


@pytest.fixture
def detach(home: AgentctlHome, marker: str) -> Iterator["_Detach"]:
    """Starts detached runs; what is left of them at the end is killed."""
    yield _Detach(home, marker)
    kill_all(marker)


class _Detach:
    def __init__(self, home: AgentctlHome, marker: str) -> None:
        self.home = home
        self.environment = {MARKER_VARIABLE: marker}

    def __call__(self, *arguments: str, **more: Any) -> Finished:
        return self.home.run("run", "-d", *arguments, environment=self.environment, **more)

    def sh(self, script: str, *options: str) -> str:
        """The id of a run of a shell script."""
        done = self(*options, "--", "sh", "-c", script)
        assert (done.code, done.err) == (0, ""), done
        return done.out.strip()

    def supervisor(self, run: str) -> int:
        """The pid of the run's supervisor."""
        first = self.home.run("events", run).out.splitlines()[0]
        pid: int = json.loads(first)["supervisor"]["pid"]
        return pid


def test_it_is_seen_and_stopped_like_any_other_and_its_supervisor_ends_with_it(
    home: AgentctlHome, detach: _Detach, marker: str
) -> None:
    """The id is all that is printed; ps, show and stop work; then nothing is left."""
    run = detach.sh(_WAITS, "--name", "demo")
    assert run.startswith("r-")
    assert home.run("ps", "-q").out == f"{run}\n"
    assert home.run("show", "demo", "-o", "json").json()["state"] == "running"
    done = home.run("stop", "demo")
    assert (done.code, "1 of 1 process gone" in done.out) == (0, True)
    assert wait_until_gone(marker, within_s=10) == []
    assert list((home.root / "run").iterdir()) == []


def test_the_supervisor_holds_nothing_of_its_caller(detach: _Detach, tmp_path: Path) -> None:
    """Own session, null streams, ``/`` as its directory, no descriptor from us."""
    held = tmp_path / "held"
    ours, theirs = socket.socketpair()
    with held.open("w") as file, ours, theirs:
        for fd in (file.fileno(), theirs.fileno()):
            os.set_inheritable(fd, True)
        run = subprocess.run(
            detach.home.argv("run", "-d", "--", "sleep", "100"),
            env=detach.home.environment | detach.environment,
            close_fds=False,
            cwd=tmp_path,
            capture_output=True,
            check=True,
        ).stdout.decode()
        theirs.close()
        # Nobody else has it: the end of file is there at once.
        ours.settimeout(20)
        assert ours.recv(1) == b""
    pid = detach.supervisor(run.strip())
    found = descriptors(pid)
    assert {found[fd] for fd in (0, 1, 2)} == {os.devnull}
    assert str(held) not in found.values()
    assert not any(what.startswith("/dev/pts") for what in found.values())
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/cwd") == "/"


def test_the_run_has_the_callers_directory_and_environment(
    home: AgentctlHome, detach: _Detach, tmp_path: Path
) -> None:
    """Its directory and arguments may be bytes that are no UTF-8; values are not kept."""
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/d\xff r")
    os.mkdir(odd)
    done = subprocess.run(
        home.argv(
            "run", "-d", "--name", "demo", "--", "sh", "-c", 'pwd; echo "$S3CRET" "$0"', "\udcfe"
        ),
        env={**home.environment, **detach.environment, "S3CRET": "hunter2-x"},
        cwd=odd,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    home.run("wait", "demo")
    assert home.run("logs", "demo").stdout == os.fsencode(odd) + b"\nhunter2-x \xfe\n"
    kept = [p for p in home.root.rglob("*") if p.is_file() and b"hunter2" in p.read_bytes()]
    assert [path.suffix for path in kept] == [".log"]  # only what the run itself printed


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--", "no-such-program-anywhere"], 127, "no-such-program-anywhere"),
        (["--", "/etc/passwd"], 126, "/etc/passwd"),
        (["-i", "--", "true"], 2, "exclude each other"),
    ],
)
def test_a_run_that_does_not_start_is_told_with_its_code(
    detach: _Detach, arguments: list[str], code: int, said: str
) -> None:
    """Error and hint of the run's supervisor come out here; nothing is on stdout."""
    done = detach(*arguments)
    assert (done.code, done.stdout) == (code, b"")
    assert [line.partition(":")[0] for line in done.err.splitlines()] == ["error", "hint"]
    assert said in done.err


def test_an_error_before_the_run_exists_is_told_too(home: AgentctlHome, detach: _Detach) -> None:
    """A name that is taken, and a state directory that cannot be used."""
    detach.sh(_WAITS, "--name", "demo")
    done = detach("--name", "demo", "--", "true")
    assert (done.code, "a run named demo is alive" in done.err) == (125, True)
    assert "hint: agentctl stop demo" in done.err
    blocked = home.root / "file"
    blocked.touch()
    done = home.run("run", "-d", "--", "true", environment={"AGENTCTL_HOME": str(blocked)})
    assert (done.code, "error: " in done.err, done.stdout) == (125, True, b"")


def test_it_survives_the_end_of_its_terminal(home: AgentctlHome, detach: _Detach) -> None:
    """The terminal is closed as soon as the id is there: the run goes on."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(
            detach.home.argv()[0],
            detach.home.argv("run", "-d", "--name", "demo", "--", "sh", "-c", _WAITS),
            home.environment | detach.environment,
        )
    said = b""
    while b"\n" not in said:
        said += os.read(terminal, 4096)
    os.close(terminal)  # SIGHUP to what is left of the session
    os.waitpid(pid, 0)
    supervisor = detach.supervisor("demo")
    os.kill(supervisor, signal.SIGHUP)
    report = home.run("show", "demo", "-o", "json").json()
    assert (report["state"], report["id"]) == ("running", said.decode().strip())


def test_a_signal_to_its_supervisor_stops_the_run(home: AgentctlHome, detach: _Detach) -> None:
    """It is the supervisor, so it takes the run with it, and says so."""
    run = detach.sh(_WAITS)
    os.kill(detach.supervisor(run), signal.SIGTERM)
    done = home.run("wait", "--exit-status", run)
    assert (done.code, done.out.count("\n")) == (143, 1)
    report = home.run("show", run, "-o", "json").json()
    assert (report["result"], report["reason"]) == ("stopped", "supervisor_exit")


def test_the_run_dies_with_its_supervisor(home: AgentctlHome, detach: _Detach, marker: str) -> None:
    """SIGKILL of a detached supervisor ends the run; whoever waits for it sees that at once."""
    run = detach.sh(_WAITS)
    waiting = home.start("wait", run)
    os.kill(detach.supervisor(run), signal.SIGKILL)
    out, _ = waiting.communicate(timeout=30)
    assert b"lost" in out
    assert wait_until_gone(marker, within_s=5) == []


def test_a_caller_that_leaves_before_the_answer_ends_the_run(
    home: AgentctlHome, detach: _Detach, marker: str
) -> None:
    """Nobody knows its id, so nobody could stop it."""
    # The agent's start is held up until the caller is gone.
    delay = {"AGENTCTL_FAILPOINTS": "init:maps=1,warden:forked=1"}
    caller = home.start("run", "-d", "--", "sleep", "100", environment=detach.environment | delay)
    while not (home.root / "runs").is_dir() or not home.run("ps", "-q").out:
        assert caller.poll() is None
    caller.kill()
    caller.communicate()
    run = home.run("ps", "-aq").out.strip()
    home.run("wait", run)
    assert home.run("show", run, "-o", "json").json()["result"] == "stopped"
    assert wait_until_gone(marker, within_s=10) == []
    assert not alive(marker)


def test_its_report_comes_as_json_if_wanted(detach: _Detach) -> None:
    """``-o json``: the report of the run as it starts."""
    report = detach("-o", "json", "--", "sleep", "100").json()
    assert (report["schema"], report["state"], report["result"]) == (1, "running", None)
