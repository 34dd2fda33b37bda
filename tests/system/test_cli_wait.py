"""`agentctl wait`: ends with the runs, and does nothing to them."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentctl_testkit import AgentctlHome
from agentctl_testkit.held import HeldRun


def test_it_ends_with_the_last_of_the_runs_and_has_a_line_for_each(home: AgentctlHome) -> None:
    """In the order in which they end; a run that is named twice is one."""
    with HeldRun(home, "one") as one, HeldRun(home, "two") as two:
        waiting = home.start("wait", "one", "two", one.id)
        assert waiting.stdout is not None
        two.finish(3)
        assert waiting.stdout.readline().startswith(b"two failed (exit 3)")
        assert waiting.poll() is None
        one.finish()
        out, err = waiting.communicate(timeout=60)
    assert out.startswith(b"one succeeded")
    assert (out.count(b"\n"), err, waiting.returncode) == (1, b"", 0)


def test_any_ends_with_the_first(home: AgentctlHome) -> None:
    """The others go on."""
    with HeldRun(home, "one") as one, HeldRun(home, "two") as two:
        waiting = home.start("wait", "--any", "--exit-status", "one", "two")
        two.finish(3)
        assert waiting.communicate(timeout=60)[0].startswith(b"two failed (exit 3)")
        assert waiting.returncode == 3
        assert one.directory.is_held()


def test_a_time_out_is_124_and_leaves_the_run_alone(home: AgentctlHome) -> None:
    """It is the waiting that ends; it takes the time that was given, and no more."""
    with HeldRun(home, "one") as run, HeldRun(home, "two") as two:
        two.finish()
        began = time.monotonic()
        done = home.run("wait", "--timeout", "300ms", "one", "two")
        assert 0.3 <= time.monotonic() - began < 20
        assert done.code == 124
        assert [line.split()[:2] for line in done.out.splitlines()] == [
            ["two", "succeeded"],
            ["one", "still"],
        ]
        assert run.directory.is_held()
        told = home.run("wait", "--timeout", "0", "-o", "json", "one", "two")
        assert (told.code, told.json()["timed_out"]) == (124, True)
        assert [report["name"] for report in told.json()["runs"]] == ["two"]


def test_it_costs_nothing_while_it_waits(home: AgentctlHome) -> None:
    """No looking again and again: the kernel tells."""
    with HeldRun(home, "demo") as run:
        waiting = home.start("wait", "demo")
        _until_asleep(waiting.pid)
        before = _switches(waiting.pid)
        time.sleep(0.6)  # what is measured is that nothing happens in it
        assert _switches(waiting.pid) == before
        run.finish()
        assert waiting.wait(timeout=60) == 0
        waiting.communicate()


def _until_asleep(pid: int, threads: int = 2) -> None:
    """Return once it has *threads*, one of them for the lock, and all sleep."""
    while True:
        tasks = _tasks(pid)
        if len(tasks) == threads and all("\nState:\tS" in task for task in tasks):
            return
        time.sleep(0.02)


def _tasks(pid: int) -> list[str]:
    return [(task / "status").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]


def _switches(pid: int) -> list[str]:
    return sorted(
        line for task in _tasks(pid) for line in task.splitlines() if "ctxt_switches" in line
    )


def test_ctrl_c_ends_the_waiting_only(home: AgentctlHome) -> None:
    """130, and the runs go on."""
    with HeldRun(home, "done") as done, HeldRun(home, "demo") as run:
        done.finish()
        waiting = home.start("wait", "done", "demo")
        assert waiting.stdout is not None
        waiting.stdout.readline()
        waiting.send_signal(signal.SIGINT)
        _, err = waiting.communicate(timeout=60)
        assert (waiting.returncode, err) == (130, b"left before the end; the runs go on\n")
        assert run.directory.is_held()


# Its first thread takes the signals, so that none interrupts what the main thread waits in.
_UNINTERRUPTED = """
import signal, sys, threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
from agentctl_supervisor.cli import main
sys.exit(main(sys.argv[1:]))
"""


# Here the interrupt is raised in a callback of the collector's, which drops exceptions.
_SWALLOWED = """
import os, signal, sys, weakref
from agentctl_supervisor.cli import main
from agentctl_supervisor.observe import wait_runs
from agentctl_supervisor.processes import signal_wakeup

class Thing:
    pass

def poll(source, timeout_s=None, real=signal_wakeup.poll):
    thing = Thing()
    kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
    del thing
    return real(source, timeout_s)

wait_runs.poll = poll
sys.exit(main(["wait", "demo"]))
"""


def test_a_ctrl_c_that_is_dropped_on_its_way_ends_the_waiting(home: AgentctlHome) -> None:
    """Imports run such callbacks, too."""
    with HeldRun(home, "demo") as run:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _SWALLOWED],
            env=home.environment,
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert b"Exception ignored in" in done.stderr
        assert b"left before the end; the runs go on" in done.stderr
        assert done.returncode == 130
        assert run.directory.is_held()


@pytest.mark.parametrize("command", [("wait",), ("logs", "--follow")], ids=["wait", "logs"])
def test_a_ctrl_c_is_not_lost_that_comes_just_before_the_waiting(
    home: AgentctlHome, command: tuple[str, ...]
) -> None:
    """Python notes it, and no system call is interrupted by it: the waiting ends nevertheless."""
    with HeldRun(home, "demo") as run:
        waiting = subprocess.Popen(
            [sys.executable, "-P", "-c", _UNINTERRUPTED, *command, "demo"],
            env=home.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        _until_asleep(waiting.pid, threads=3)
        waiting.send_signal(signal.SIGINT)
        waiting.communicate(timeout=60)
        assert waiting.returncode in (130, -signal.SIGINT)
        assert run.directory.is_held()


@pytest.mark.parametrize(
    ("codes", "expected"), [((0, 0), 0), ((0, 7), 7), ((5, 7), 5)], ids=["none", "one", "first"]
)
def test_the_exit_status_is_that_of_the_runs(
    home: AgentctlHome, codes: tuple[int, int], expected: int
) -> None:
    """Of the first that is not 0, as they are named; without the option it is 0."""
    for name, code in zip(("one", "two"), codes, strict=True):
        with HeldRun(home, name) as run:
            run.finish(code)
    assert home.run("wait", "--exit-status", "one", "two").code == expected
    assert home.run("wait", "one", "two").code == 0


def test_a_run_that_is_none_is_told_and_nothing_is_waited_for(home: AgentctlHome) -> None:
    """Exit code 4 at once, though the other one lives."""
    with HeldRun(home, "demo"):
        done = home.run("wait", "demo", "nosuch", within_s=30)
    assert (done.code, "no such run: 'nosuch'" in done.err) == (4, True)
    slip = home.run("wait")
    assert (slip.code, "which run" in slip.err) == (2, True)
    assert home.run("wait", "--timeout", "soon", "demo").code == 2
