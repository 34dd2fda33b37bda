"""Runs whose supervisor died: found by whoever looks, finished once, and told truthfully."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from agentctl_protocol.messages import ResultMessage
from agentctl_protocol.records import (
    ContainedRecord,
    Created,
    End,
    Exit,
    Lost,
    RecordBody,
    RungRecord,
    Started,
    Stop,
)
from agentctl_protocol.report import Actor, Processes, Report, Survivor
from agentctl_protocol.spawning import RUN_ID_VARIABLE, ProcessIdentity
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.values import pack_value
from agentctl_protocol.vocabulary import By, Containment, Reason, Result, Rung, State
from agentctl_supervisor.errors import DamagedRunError, LogFullError
from agentctl_supervisor.processes import process_tree
from agentctl_supervisor.recover import recovery
from agentctl_supervisor.recover.leftover_processes import Leftovers, end_leftovers
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.store.event_log import LogWriter
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_supervisor.store.run_directory import Home, RunDirectory
from agentctl_testkit import alive
from agentctl_testkit.capabilities import Capability, cgroup2_mount, needs
from agentctl_testkit.log_check import BROKEN

PROGRAM = RunSpec(argv=("/bin/true",))
FUNCTION = RunSpec(target="module:function")
INTENT = Stop(Result.STOPPED, Reason.USER, "", Actor("uid", "0"), 0.0, 2.0)
VALUE = ResultMessage(value=pack_value(42))


@pytest.fixture(scope="session")
def dead() -> ProcessIdentity:
    """A process that was, and is not."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        identity = process_tree.identity_of(process.pid)
    assert identity is not None
    return identity


@pytest.fixture
def runs(tmp_path: Path) -> Home:
    return Home.open({"AGENTCTL_HOME": str(tmp_path / "state")}, create=True)


@pytest.fixture
def created(dead: ProcessIdentity) -> Created:
    return Created(supervisor=dead, boot_id=process_tree.boot_id())


def abandon(runs: Home, *bodies: RecordBody, spec: RunSpec = PROGRAM) -> RunDirectory:
    """A run with these records, and without its supervisor; only those who look know of it."""
    run = runs.create_run(spec)
    writer = LogWriter(run.path, run.id)
    for body in bodies:
        writer.append(body, By.CHILD if isinstance(body, ResultMessage) else By.SUPERVISOR)
    run.unlock()
    return RunDirectory(run.path)


def bodies(run: RunDirectory) -> list[RecordBody | None]:
    return [record.body for record in LogReader(run.path, run.id)]


def kinds(run: RunDirectory) -> list[type]:
    return [type(body) for body in bodies(run)]


# --- what became of it ------------------------------------------------------


def test_a_run_without_its_supervisor_is_lost(runs: Home, created: Created) -> None:
    """Whoever looks at it finishes its log and its report."""
    run = abandon(runs, created, Started())
    report = recovery.current(run)
    assert (report.state, report.result) == (State.FINISHED, Result.LOST)
    assert report.reason is Reason.SUPERVISOR_DIED
    assert report.detail == "its supervisor died, and nothing is left of it"
    assert kinds(run) == [Created, Started, Lost, End]
    assert run.read_report() == report
    assert not run.is_held()


@pytest.mark.parametrize("records", [0, 1])
def test_a_run_that_had_not_begun_is_lost_too(runs: Home, created: Created, records: int) -> None:
    """Even one without a single record."""
    run = abandon(runs, *[created][:records])
    assert recovery.current(run).detail == "its supervisor died before the agent began"
    assert kinds(run)[-2:] == [Lost, End]


def test_recovery_says_the_same_however_often(runs: Home, created: Created) -> None:
    """From the report, from the log, and from the log once more."""
    run = abandon(runs, created, Started())
    first = recovery.recover(run)
    assert recovery.recover(run) == recovery.current(run) == first
    size = len(bodies(run))
    (run.path / "report").unlink()
    assert recovery.current(run) == first
    assert len(bodies(run)) == size
    assert run.read_report() == first


def test_an_intent_becomes_the_stop(runs: Home, created: Created) -> None:
    """Who decided while the supervisor was dead is in the report."""
    run = abandon(runs, created, Started())
    run.write_intent(INTENT)
    report = recovery.current(run)
    assert (report.result, report.reason, report.actor) == (
        Result.STOPPED,
        Reason.USER,
        INTENT.actor,
    )
    stop = bodies(run)[2]
    assert isinstance(stop, Stop)
    assert stop.intent
    assert kinds(run) == [Created, Started, Stop, End]


def test_an_intent_after_the_work_was_done_changes_nothing(runs: Home, created: Created) -> None:
    """The first that settles it does."""
    run = abandon(runs, created, Started(), VALUE, spec=FUNCTION)
    run.write_intent(INTENT)
    report = recovery.current(run)
    assert (report.result, report.value) == (Result.SUCCEEDED, 42)
    assert kinds(run) == [Created, Started, ResultMessage, End]


def test_a_stop_that_was_under_way_stays_a_stop(runs: Home, created: Created) -> None:
    """A supervisor that dies while it stops a run does not make it lost."""
    run = abandon(runs, created, Started(), INTENT, RungRecord(Rung.ASKED, 5))
    report = recovery.current(run)
    assert report.result is Result.STOPPED
    assert report.processes.seen == 5
    assert kinds(run) == [Created, Started, Stop, RungRecord, End]


def test_an_exit_that_was_recorded_decides(runs: Home, created: Created) -> None:
    """What is known is not lost."""
    run = abandon(runs, created, Started(), Exit(code=3))
    report = recovery.current(run)
    assert (report.result, report.exit_code) == (Result.FAILED, 3)


def test_a_recovery_that_was_cut_short_is_finished(runs: Home, created: Created) -> None:
    """Whoever recovers may be killed, too."""
    run = abandon(runs, created, Started(), Lost("its supervisor died"))
    assert recovery.current(run).result is Result.LOST
    assert kinds(run) == [Created, Started, Lost, End]


def test_a_log_with_an_end_only_lacks_its_report(runs: Home, created: Created) -> None:
    """Nothing is appended behind the end."""
    run = abandon(runs, created, Started(), Exit(code=0), End())
    before = (run.path / "00000001.log").read_bytes()
    assert recovery.current(run).result is Result.SUCCEEDED
    assert (run.path / "00000001.log").read_bytes() == before
    assert run.read_report() is not None


def test_a_live_run_is_left_alone(runs: Home) -> None:
    """Looking at it tells what is known so far, and writes nothing."""
    run = runs.create_run(PROGRAM)
    own = process_tree.identity_of(os.getpid())
    assert own is not None
    writer = LogWriter(run.path, run.id)
    writer.append(Created(supervisor=own, boot_id=process_tree.boot_id()))
    writer.append(Started())
    report = recovery.current(RunDirectory(run.path))
    assert (report.state, report.result) == (State.RUNNING, None)
    assert report.log.bytes == writer.size
    assert kinds(run) == [Created, Started]
    assert not (run.path / "report").exists()
    writer.close()


def test_of_many_who_look_at_once_one_does_it(runs: Home, created: Created) -> None:
    """All of them see the same."""
    run = abandon(runs, created, Started())
    barrier = Barrier(16)

    def look(_: int) -> Report:
        barrier.wait()
        return recovery.current(RunDirectory(run.path))

    with ThreadPoolExecutor(16) as pool:
        reports = list(pool.map(look, range(16)))
    assert all(report == reports[0] for report in reports)
    assert reports[0].finished
    assert kinds(run) == [Created, Started, Lost, End]


def test_many_programs_that_look_at_once_see_the_same(runs: Home, created: Created) -> None:
    """The lock works between processes."""
    run = abandon(runs, created, Started())
    program = (
        "import pathlib, sys; from agentctl_supervisor.recover import recovery;"
        "from agentctl_supervisor.store import run_directory;"
        "print(recovery.current(run_directory.RunDirectory(pathlib.Path(sys.argv[1]))))"
    )
    lookers = [
        subprocess.Popen([sys.executable, "-c", program, str(run.path)], stdout=subprocess.PIPE)
        for _ in range(6)
    ]
    shown = {looker.communicate(timeout=60)[0] for looker in lookers}
    assert len(shown) == 1
    assert b"LOST" in shown.pop()
    assert kinds(run) == [Created, Started, Lost, End]


# --- damage and disks -------------------------------------------------------


def test_a_torn_tail_is_cut_counted_and_told_for_good(runs: Home, created: Created) -> None:
    """The report made from the mended log says so, too."""
    run = abandon(runs, created, Started())
    with (run.path / "00000001.log").open("ab") as file:
        file.write(b"half a record")
    report = recovery.current(run)
    assert (report.log.torn_bytes, report.log.damaged) == (13, ())
    (run.path / "report").unlink()
    assert recovery.current(run) == report


def test_damage_in_the_log_is_in_the_report(runs: Home, created: Created) -> None:
    """And the rest of it still counts."""
    run = abandon(runs, created, Started(), Exit(code=3))
    (runs.root / BROKEN).touch()
    path = run.path / "00000001.log"
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF
    path.write_bytes(data)
    report = recovery.current(run)
    assert report.exit_code == 3
    assert "bad checksum" in report.log.damaged[0]


@pytest.mark.parametrize("name", ["spec", "00000001.log", "report"])
def test_what_cannot_be_read_at_all_is_a_named_error(
    runs: Home, created: Created, name: str
) -> None:
    """With the file's name, and nothing written."""
    run = abandon(runs, created, Started())
    (runs.root / BROKEN).touch()
    if name.endswith(".log"):
        (run.path / name).write_bytes(b"AGCTLLOG\0\0\0\x63" + bytes(20))
    else:
        (run.path / name).write_bytes(b"garbage")
    with pytest.raises(DamagedRunError):
        recovery.current(run)
    assert not run.is_held()


def test_a_damaged_intent_does_not_keep_a_run_unfinished(runs: Home, created: Created) -> None:
    """It is told, and the run is lost."""
    run = abandon(runs, created, Started())
    (runs.root / BROKEN).touch()
    (run.path / "intent").write_bytes(b"garbage")
    report = recovery.current(run)
    assert report.result is Result.LOST
    assert "intent is damaged" in report.log.damaged[0]


@pytest.mark.parametrize("intent", [True, False])
def test_a_disk_that_takes_nothing_changes_nothing_of_the_report(
    runs: Home, created: Created, monkeypatch: pytest.MonkeyPatch, intent: bool
) -> None:
    """It is right, and written when somebody looks again."""
    run = abandon(runs, created, Started())
    if intent:
        run.write_intent(INTENT)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        patch.setattr(os, "link", full)
        report = recovery.current(run)
    assert report.result is (Result.STOPPED if intent else Result.LOST)
    assert kinds(run) == [Created, Started]
    assert run.read_report() is None
    again = recovery.current(run)
    assert (again.result, again.actor) == (report.result, report.actor)
    assert run.read_report() == again


def test_a_full_reserve_is_given_back_for_the_end(
    runs: Home, created: Created, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The room that the dead supervisor kept is for this."""
    run = abandon(runs, created, Started())
    (run.path / "reserve").write_bytes(bytes(100))
    real = LogWriter.append_batch

    def needs_room(writer: LogWriter, records: object) -> object:
        if (run.path / "reserve").exists():
            raise LogFullError("full")
        return real(writer, records)  # type: ignore[arg-type]

    monkeypatch.setattr(LogWriter, "append_batch", needs_room)
    assert recovery.current(run).result is Result.LOST
    assert kinds(run)[-1] is End


@needs(Capability.ROOT)
def test_a_read_only_file_system_has_right_reports(runs: Home, created: Created) -> None:
    """Looking at an archive of runs works."""
    run = abandon(runs, created, Started())
    program = (
        "import pathlib, sys; from agentctl_supervisor.recover import recovery;"
        "from agentctl_supervisor.store import run_directory;"
        "print(recovery.current(run_directory.RunDirectory(pathlib.Path(sys.argv[1]))).result)"
    )
    mount = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", mount, "sh", str(runs.root), sys.executable, "-c"]
    done = subprocess.run(
        [*command, program, str(run.path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout == "lost\n", done.stderr
    assert kinds(run) == [Created, Started]


# --- what is left running ---------------------------------------------------

TREE = """
import os, time
for n in range(3):
    if os.fork() == 0:
        os.setsid()
        os.fork()
        os.write(1, b".")
        time.sleep(1000)
os.write(1, b".")
time.sleep(1000)
"""
TREE_SIZE = 7


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[bytes]]:
    """Seven processes: a warden's stand-in, and six that belong to its run."""
    with subprocess.Popen(
        [sys.executable, "-c", TREE], stdout=subprocess.PIPE, process_group=0
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(TREE_SIZE) == b"." * TREE_SIZE
        yield process
        process.kill()


def identity(pid: int) -> ProcessIdentity:
    found = process_tree.identity_of(pid)
    assert found is not None
    return found


def test_what_the_keepers_left_is_killed(
    runs: Home, created: Created, tree: subprocess.Popen[bytes]
) -> None:
    """The run's processes, then its warden; both are counted as what they are."""
    contained = ContainedRecord(identity(tree.pid), identity(tree.pid), Containment.SUBREAPER)
    left = process_tree.members(contained)
    run = abandon(runs, created, contained, Started())
    report = recovery.current(run)
    assert (report.processes.seen, report.processes.killed, report.processes.survivors) == (6, 6, 0)
    assert not any(process_tree.is_alive(who) for who in left)
    assert not process_tree.is_alive(contained.warden)


@needs(Capability.ROOT)
def test_a_pid_namespace_that_was_left_is_ended(runs: Home, created: Created) -> None:
    """By its init."""
    command = ["unshare", "--pid", "--fork", sys.executable, "-c", TREE]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as warden:
        assert warden.stdout is not None
        warden.stdout.read(TREE_SIZE)
        children = Path(f"/proc/{warden.pid}/task/{warden.pid}/children").read_text().split()
        init = int(children[0])
        contained = ContainedRecord(
            identity(warden.pid),
            identity(init),
            Containment.PID_NAMESPACE,
            namespace=os.stat(f"/proc/{init}/ns/pid").st_ino,
        )
        run = abandon(runs, created, contained, Started())
        report = recovery.current(run)
    assert report.processes.survivors == 0
    assert report.processes.seen >= TREE_SIZE - 1
    assert process_tree.members(contained, with_init=True) == []


@needs(Capability.CGROUP2)
def test_the_cgroup_of_a_dead_run_is_emptied_and_removed(runs: Home, created: Created) -> None:
    """Whoever moved out of reach of everything else is in it."""
    mount = cgroup2_mount()
    assert mount is not None
    run = runs.create_run(PROGRAM)
    group = mount / f"agentctl-{run.id}"
    (group / "below").mkdir(parents=True)
    with subprocess.Popen(["sleep", "1000"]) as process:
        (group / "below" / "cgroup.procs").write_text(str(process.pid))
        contained = ContainedRecord(
            created.supervisor, created.supervisor, Containment.SUBREAPER, cgroup=str(group)
        )
        with_cgroup = LogWriter(run.path, run.id)
        with_cgroup.append_batch([(body, By.SUPERVISOR, 1) for body in (created, contained)])
        with_cgroup.close()
        run.unlock()
        report = recovery.current(run)
        assert process.wait() == -9
    assert report.processes.seen == 1
    assert not group.exists()


def test_a_path_in_the_log_that_is_not_the_runs_cgroup_is_left_alone(
    runs: Home, created: Created, tmp_path: Path
) -> None:
    """A damaged or forged log kills and removes nothing of others."""
    precious = tmp_path / "precious"
    precious.mkdir()
    contained = ContainedRecord(
        created.supervisor, created.supervisor, Containment.SUBREAPER, cgroup=str(precious)
    )
    recovery.current(abandon(runs, created, contained))
    assert precious.is_dir()


def test_a_number_that_was_given_to_another_process_is_not_signalled(
    runs: Home, created: Created, tree: subprocess.Popen[bytes]
) -> None:
    """Only the start time tells."""
    other = ProcessIdentity(tree.pid, identity(tree.pid).start_time - 1)
    contained = ContainedRecord(other, other, Containment.SUBREAPER)
    report = recovery.current(abandon(runs, created, contained, Started()))
    assert report.result is Result.LOST
    assert report.processes.killed == 0
    assert tree.poll() is None
    _clean(tree)


def test_after_a_restart_nothing_is_signalled(
    runs: Home, created: Created, tree: subprocess.Popen[bytes]
) -> None:
    """Even the right number with the right start time is another process's."""
    contained = ContainedRecord(identity(tree.pid), identity(tree.pid), Containment.SUBREAPER)
    old = Created(supervisor=created.supervisor, boot_id="another boot")
    report = recovery.current(abandon(runs, old, contained, Started()))
    assert report.detail == "the machine was restarted while it ran"
    assert tree.poll() is None
    _clean(tree)


def test_a_run_cut_off_before_it_was_contained_is_found_by_its_id(
    runs: Home, created: Created
) -> None:
    """The supervisor may die between starting a run and writing down what it started."""
    run = runs.create_run(PROGRAM)
    with subprocess.Popen(["sleep", "1000"], env={RUN_ID_VARIABLE: run.id}) as process:
        # execve(2) closes descriptors, by which Popen knows of it, before it sets the environment.
        while not alive(run.id):
            os.sched_yield()
        left = end_leftovers(created, None, run.id)
        try:
            assert process.wait(10) == -9
        finally:
            process.kill()
    assert (left.seen, left.killed, left.survivors) == (1, 1, ())
    runs.discard(run)


def test_survivors_are_named_in_the_end_record() -> None:
    """A stop that did not work is never told as one that did."""
    fold = Fold("r-testtest", PROGRAM)
    left = Leftovers(seen=3, killed=2, survivors=(Survivor(7, "stuck"),))
    lost, end = recovery.missing_records(fold, None, left, torn_bytes=5)
    assert isinstance(lost, Lost)
    assert isinstance(end, End)
    assert (end.processes.survivors, end.survivors, end.torn_bytes) == (1, left.survivors, 5)


def test_whom_nobody_counted_is_not_denied(runs: Home, created: Created) -> None:
    """The keepers killed all that there was: one at least, and how many more is not known."""
    report = recovery.current(abandon(runs, created, Started()))
    assert report.processes == Processes(seen=1, at_least=True)
    counted = RungRecord(step=Rung.SIGTERM, processes=4)
    report = recovery.current(abandon(runs, created, Started(), counted))
    assert report.processes == Processes(seen=4, at_least=True)
    report = recovery.current(abandon(runs, created, Started(), Exit(code=0, left=2)))
    assert report.processes == Processes(seen=3, killed=2)
    report = recovery.current(abandon(runs, created))
    assert report.processes == Processes()


def test_a_removed_run_is_a_named_error(runs: Home, created: Created) -> None:
    """Somebody may remove a run while we look at it."""
    run = abandon(runs, created)
    shutil.rmtree(run.path)
    with pytest.raises(Exception, match=run.id) as caught:
        recovery.current(run)
    assert caught.value.__class__.__module__ == "agentctl_supervisor.errors"


def _clean(tree: subprocess.Popen[bytes]) -> None:
    contained = ContainedRecord(identity(tree.pid), identity(tree.pid), Containment.SUBREAPER)
    own = process_tree.identity_of(os.getpid())
    assert own is not None
    end_leftovers(Created(own, process_tree.boot_id()), contained, "r-testtest")
