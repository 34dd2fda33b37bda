"""Processes by identity, and who belongs to a run: with real processes, as /proc shows them."""

import os
import select
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentctl_protocol.records import ContainedRecord
from agentctl_protocol.spawning import RUN_ID_VARIABLE, ProcessIdentity
from agentctl_protocol.vocabulary import Containment
from agentctl_supervisor.processes import process_tree
from agentctl_testkit.capabilities import Capability, cgroup2_mount, needs

NOBODY = ProcessIdentity(0, 0)
SLEEP = shutil.which("sleep") or "sleep"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def identity(pid: int) -> ProcessIdentity:
    found = process_tree.identity_of(pid)
    assert found is not None
    return found


def wait_zombie(process: subprocess.Popen[bytes]) -> None:
    """Until *process* has ended, without reaping it."""
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


# --- identities -------------------------------------------------------------


def test_a_process_has_an_identity(sleeper: subprocess.Popen[bytes]) -> None:
    """Number and start time; the same as long as it lives."""
    assert identity(sleeper.pid) == identity(sleeper.pid)
    assert identity(sleeper.pid).start_time > 0
    assert process_tree.is_alive(identity(sleeper.pid))


def test_a_zombie_is_dead(sleeper: subprocess.Popen[bytes]) -> None:
    """It holds a number and nothing else."""
    who = identity(sleeper.pid)
    sleeper.kill()
    wait_zombie(sleeper)
    assert process_tree.identity_of(sleeper.pid) == who
    assert not process_tree.is_alive(who)
    assert process_tree.open_pidfd(who) is None


def test_another_process_of_the_same_number_is_another(sleeper: subprocess.Popen[bytes]) -> None:
    """A recycled number never gets a signal."""
    other = ProcessIdentity(sleeper.pid, identity(sleeper.pid).start_time - 1)
    assert not process_tree.is_alive(other)
    assert process_tree.open_pidfd(other) is None


@pytest.mark.parametrize("pid", [-1, 0, 1 << 22, 1 << 40])
def test_a_number_that_nobody_has_is_nobody(pid: int) -> None:
    """Whatever a damaged log says."""
    assert process_tree.identity_of(pid) is None
    assert not process_tree.is_alive(ProcessIdentity(pid, 1))
    assert process_tree.open_pidfd(ProcessIdentity(pid, 1)) is None


def test_a_name_full_of_brackets_confuses_nobody() -> None:
    """The name in /proc/<pid>/stat is the process's own choice."""
    program = (
        "import sys; open('/proc/self/comm', 'w').write(') Z 1 (x'); print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert process_tree.is_alive(identity(process.pid))
        process.kill()


def test_signals_go_through_pidfds(sleeper: subprocess.Popen[bytes]) -> None:
    """To the living; the dead are not an error."""
    pidfd = process_tree.open_pidfd(identity(sleeper.pid))
    assert pidfd is not None
    assert process_tree.send_signal(pidfd, signal.SIGTERM)
    assert process_tree.wait_dead([pidfd], 30)
    assert sleeper.wait() == -signal.SIGTERM
    assert not process_tree.send_signal(pidfd, signal.SIGTERM)
    os.close(pidfd)


def test_waiting_for_the_living_ends(sleeper: subprocess.Popen[bytes]) -> None:
    """With the time that was given; of nobody, at once."""
    pidfd = os.pidfd_open(sleeper.pid)
    assert not process_tree.wait_dead([pidfd], 0.01)
    assert not process_tree.wait_dead([pidfd], -1)
    assert process_tree.wait_dead([], 0)
    os.close(pidfd)


def test_the_boot_has_a_name() -> None:
    """The kernel's."""
    assert process_tree.boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_a_command_line_is_fit_for_a_terminal() -> None:
    """Control characters, bytes that are no text, and length are the process's own choice."""
    evil = ["\x1b[31m\n", os.fsdecode(b"\xff"), "\u202e", "x" * 9999]
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()", *evil],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        shown = process_tree.command_line(process.pid)
        process.kill()
    assert shown.isprintable()
    assert shown.isascii()
    assert len(shown) < 220
    assert process_tree.command_line(1 << 22) == ""


# --- the members of a run ---------------------------------------------------

TREE = """
import os, sys, time

def grow(depth, orphan):
    pid = os.fork()
    if pid == 0:
        if depth:
            grow(depth - 1, orphan)
        if orphan:
            os.setsid()
            parent = os.getpid()
            if os.fork():
                os._exit(0)
            while os.getppid() == parent:  # it counts until it is gone
                time.sleep(0.001)
        os.write(1, b".")
        time.sleep(1000)
        os._exit(0)
    return pid

import ctypes
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
for n in range(3):
    grow(n, orphan=False)
grow(0, orphan=True)
time.sleep(1000)
"""
TREE_SIZE = 1 + 2 + 3 + 1


def test_the_fallback_finds_all_descendants_of_the_warden() -> None:
    """Deep ones and orphans that it adopted; not the warden itself."""
    with subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE) as warden:
        assert warden.stdout is not None
        assert warden.stdout.read(TREE_SIZE) == b"." * TREE_SIZE
        contained = ContainedRecord(identity(warden.pid), NOBODY, Containment.SUBREAPER)
        found = process_tree.members(contained)
        assert len(found) == TREE_SIZE
        assert warden.pid not in [who.pid for who in found]
        _kill(found)
        warden.kill()
        assert process_tree.members(contained) == []


def test_without_children_files_every_process_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel without CONFIG_PROC_CHILDREN is no excuse."""
    monkeypatch.setattr(process_tree, "_has_children_files", lambda: False)
    test_the_fallback_finds_all_descendants_of_the_warden()


def test_children_of_threads_are_found() -> None:
    """A child belongs to the thread that forked it."""
    program = (
        "import threading, subprocess\n"
        "def work():\n"
        "    child = subprocess.Popen(['sleep', '1000']); print(child.pid, flush=True); input()\n"
        "threading.Thread(target=work).start()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as warden:
        assert warden.stdout is not None
        child = int(warden.stdout.readline())
        contained = ContainedRecord(identity(warden.pid), NOBODY, Containment.SUBREAPER)
        found = process_tree.members(contained)
        assert [who.pid for who in found] == [child]
        _kill(found)
        warden.kill()


@needs(Capability.ROOT)
def test_a_pid_namespace_holds_all_of_a_run() -> None:
    """Init, its descendants, those in namespaces below, and who joined from outside."""
    inner = f"{sys.executable} -c '{TREE}'"
    nested = "unshare --pid --fork sleep 1000 &"
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", nested + inner],
        stdout=subprocess.PIPE,
    ) as outside:
        try:
            assert outside.stdout is not None
            assert outside.stdout.read(TREE_SIZE) == b"." * TREE_SIZE
            (init,) = _children(outside.pid)
            contained = ContainedRecord(
                identity(outside.pid),
                identity(init),
                Containment.PID_NAMESPACE,
                namespace=os.stat(f"/proc/{init}/ns/pid").st_ino,
            )
            join = ["nsenter", f"--pid=/proc/{init}/ns/pid", "sh", "-c", "echo; exec cat"]
            with subprocess.Popen(join, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as joiner:
                assert joiner.stdout is not None
                joiner.stdout.read(1)
                members = process_tree.members(contained, with_init=True)
                of_the_run = process_tree.members(contained)
                outside.kill()
                outside.wait()
        finally:
            outside.kill()
        shown = Counter(who.pid for who in members)
        assert max(shown.values()) == 1
        assert init in shown
        assert set(members) - set(of_the_run) == {contained.root}
        assert outside.pid not in shown
        # Shell, tree, what is nested deeper (two processes), and the one that joined.
        assert len(members) == 1 + 1 + TREE_SIZE + 2 + 1
        # The namespace ends with its init, and takes the one that joined along.
        _wait_until_empty(contained)


@needs(Capability.PID_NAMESPACE)
def test_members_that_hide_their_namespace_are_found_by_descent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process that is not dumpable does not show its namespace."""
    monkeypatch.setattr(process_tree, "_namespace_of", lambda _: None)
    with subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE) as init:
        assert init.stdout is not None
        init.stdout.read(TREE_SIZE)
        contained = ContainedRecord(
            NOBODY, identity(init.pid), Containment.PID_NAMESPACE, namespace=1
        )
        found = process_tree.members(contained, with_init=True)
        _kill(found)
    assert len(found) == TREE_SIZE + 1


@needs(Capability.CGROUP2)
def test_a_cgroup_holds_what_nothing_else_shows() -> None:
    """Also in groups below it, and without a warden."""
    mount = cgroup2_mount()
    assert mount is not None
    group = mount / f"agentctl-test-{os.getpid()}"
    below = group / "below"
    below.mkdir(parents=True)
    with subprocess.Popen(["sleep", "1000"]) as process:
        (below / "cgroup.procs").write_text(str(process.pid))
        contained = ContainedRecord(NOBODY, NOBODY, Containment.SUBREAPER, cgroup=str(group))
        found = process_tree.members(contained)
        process.kill()
    assert [who.pid for who in found] == [process.pid]
    below.rmdir()
    group.rmdir()


def test_what_carries_the_run_id_is_found_without_keepers() -> None:
    """By environment or title, and only if it is not older than the run."""
    environ = {**os.environ, RUN_ID_VARIABLE: "r-marktest"}
    with (
        subprocess.Popen(["sleep", "1000"], env=environ) as carrier,
        subprocess.Popen(
            ["agentctl agent r-marktest module:function", "1000"], executable=SLEEP
        ) as titled,
        subprocess.Popen(
            ["sleep", "1000"], env={**environ, RUN_ID_VARIABLE: "r-marktesu"}
        ) as other,
        subprocess.Popen(["sh", "-c", "sleep 1000; : agentctl agent r-marktest"]) as mention,
    ):
        found = process_tree.marked("r-marktest")
        older = process_tree.marked("r-marktest", identity(carrier.pid).start_time + 10**9)
        for process in (carrier, titled, other):
            process.kill()
        _kill([identity(child) for child in _children(mention.pid)])
    assert {who.pid for who in found} == {carrier.pid, titled.pid}
    assert older == []


def test_the_module_needs_neither_trio_nor_psutil() -> None:
    """The command that stops a run loads it."""
    program = (
        "import sys; from agentctl_supervisor.processes import process_tree;"
        "from agentctl_supervisor.recover import recovery;"
        "from agentctl_supervisor.store import log_reader, run_directory;"
        "print({'trio', 'psutil'} & {name.split('.')[0] for name in sys.modules})"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert shown.stdout == b"set()\n"


def _children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _kill(members: list[ProcessIdentity]) -> None:
    for who in members:
        pidfd = process_tree.open_pidfd(who)
        if pidfd is not None:
            process_tree.send_signal(pidfd, signal.SIGKILL)
            process_tree.wait_dead([pidfd], 30)
            os.close(pidfd)


def _wait_until_empty(contained: ContainedRecord) -> None:
    for who in process_tree.members(contained, with_init=True):
        pidfd = process_tree.open_pidfd(who)
        if pidfd is not None:
            select.select([pidfd], [], [], 30)
            os.close(pidfd)
    assert process_tree.members(contained, with_init=True) == []


def test_a_scan_that_serves_again_takes_nobody_for_a_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many runs share a look at /proc; a number that means another process since is not theirs."""
    theirs, own = 1, os.stat("/proc/self/ns/pid").st_ino
    scan = process_tree._Scan({theirs: [os.getpid()], own: [os.getpid()]}, until=float("inf"))
    monkeypatch.setattr(process_tree, "_last_scan", scan)
    monkeypatch.setattr(process_tree, "_all_pids", lambda: pytest.fail("/proc was read again"))

    def run_in(namespace: int) -> ContainedRecord:
        return ContainedRecord(
            warden=NOBODY, root=NOBODY, containment=Containment.PID_NAMESPACE, namespace=namespace
        )

    assert process_tree.members(run_in(theirs)) == []
    assert identity(os.getpid()) in process_tree.members(run_in(own))


def test_ancestors_are_told_up_to_the_first_or_not_at_all() -> None:
    """A list that was cut off would leave out just the one that counts."""
    above = process_tree.ancestors(os.getpid(), 256)
    assert above is not None
    assert above[0] == os.getppid()
    assert process_tree.ancestors(os.getpid(), len(above)) == above
    assert process_tree.ancestors(os.getpid(), len(above) - 1) is None
