"""The writer of a log: what it promises on a good disk, on a full one, and when killed."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import msgspec
import pytest

from agentctl_protocol.messages import Events, Text
from agentctl_protocol.records import MAX_BODY
from agentctl_protocol.vocabulary import By
from agentctl_supervisor.errors import AgentctlError, LogFullError
from agentctl_supervisor.store.event_log import RESERVE_BYTES, LogWriter
from agentctl_supervisor.store.log_reader import LogEnd, LogReader
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.log import RUN_ID, LogFile, output, read_log


@pytest.fixture
def path(tmp_path: Path) -> Path:
    run = tmp_path / RUN_ID
    run.mkdir()
    return run


def test_what_is_appended_is_read_back_in_order(path: Path) -> None:
    """A record comes back with the number, time and writer that it was given."""
    writer = LogWriter(path, RUN_ID)
    appended = [writer.append(output("a")), writer.append(output("b"), By.SUPERVISOR)]
    bye = writer.append(b"\x81\xa4type\xa3bye", By.CHILD)
    records = list(LogReader(path, RUN_ID))
    assert [(r.seq, r.time_ns) for r in records] == [*appended, bye]
    assert records[2].by is By.CHILD
    writer.close()


def test_an_append_is_readable_at_once(path: Path) -> None:
    """Nothing waits in a buffer of ours that a SIGKILL would empty."""
    writer = LogWriter(path, RUN_ID)
    for n in range(3):
        writer.append(output(str(n)))
        assert len(read_log(path)[0]) == n + 1
    writer.close()


def test_a_batch_of_events_takes_as_many_numbers(path: Path) -> None:
    """So an acknowledgement can name any event."""
    writer = LogWriter(path, RUN_ID)
    events = Events(first=1, events=[Text("x")] * 5)
    assert writer.append(events, By.CHILD, 5).seq == 1
    assert writer.append(output("next")).seq == 6
    assert writer.next_seq == 7
    writer.close()
    reader = LogReader(path, RUN_ID)
    assert [r.seq for r in reader] == [1, 6]
    assert reader.damaged == []


def test_append_batch_writes_all_with_their_numbers(path: Path) -> None:
    """Many records, one system call, the same bytes as one by one."""
    writer = LogWriter(path, RUN_ID)
    events = msgspec.msgpack.encode(Events(first=1, events=[Text("x")] * 3))
    appended = writer.append_batch(
        [(output("a"), By.SUPERVISOR, 1), (events, By.CHILD, 3), (output("b"), By.SUPERVISOR, 1)]
    )
    assert [a.seq for a in appended] == [1, 2, 5]
    assert writer.append_batch([]) == []
    assert [r.seq for r in LogReader(path, RUN_ID)] == [1, 2, 5]
    writer.close()


def test_a_body_over_the_limit_is_our_own_mistake(path: Path) -> None:
    """A record that no reader would take is not written."""
    writer = LogWriter(path, RUN_ID)
    with pytest.raises(ValueError, match="limit"):
        writer.append(bytes(MAX_BODY + 1))
    with pytest.raises(ValueError, match="limit"):
        writer.append_batch([(bytes(MAX_BODY + 1), By.SUPERVISOR, 1)])
    writer.append(output("fine"))
    assert read_log(path)[0] == ["fine"]
    writer.close()


def test_segments_rotate_by_size_and_the_size_is_known(path: Path) -> None:
    """No file grows over its bound, unless one record alone does."""
    writer = LogWriter(path, RUN_ID, segment_bytes=1000)
    for n in range(100):
        writer.append(output(f"record {n}"))
    writer.append(output("x" * 5000))
    files = sorted(path.glob("*.log"))
    assert len(files) > 3
    assert all(file.stat().st_size <= 1000 for file in files[:-1])
    assert writer.size == sum(file.stat().st_size for file in files)
    assert len(read_log(path)[0]) == 101
    writer.close()


# --- going on with a log that is there --------------------------------------


def test_a_log_is_continued_behind_its_last_record(tmp_path: Path) -> None:
    """Recovery appends to what the dead supervisor wrote."""
    log = LogFile.write(tmp_path, ["one", "two"])
    writer = LogWriter(log.path, RUN_ID)
    assert writer.next_seq == 3
    writer.append(output("three"))
    assert log.read()[0] == ["one", "two", "three"]
    assert writer.size == log.segment().stat().st_size
    writer.close()


@pytest.mark.parametrize("torn", [b"\0", b"half a record and more", bytes(5000)])
def test_a_torn_tail_is_cut_and_counted(tmp_path: Path, torn: bytes) -> None:
    """What follows it would otherwise be damage in the middle."""
    log = LogFile.write(tmp_path, ["one", "two"])
    log.grow(torn)
    writer = LogWriter(log.path, RUN_ID)
    assert writer.cut_bytes == len(torn)
    writer.append(output("three"))
    writer.close()
    texts, reader = log.read()
    assert texts == ["one", "two", "three"]
    assert (reader.torn_bytes, reader.damaged) == (0, [])


def test_numbers_go_on_over_segments_and_batches(tmp_path: Path) -> None:
    """The next number is right even where the last segment holds nothing."""
    log = LogFile.write(tmp_path, ["one"])
    log.segment(2).write_bytes(b"AGCT")
    writer = LogWriter(log.path, RUN_ID)
    assert (writer.cut_bytes, writer.next_seq) == (4, 2)
    writer.append(output("two"))
    writer.close()
    assert log.read()[0] == ["one", "two"]
    assert log.read()[1].damaged == []


# --- durability -------------------------------------------------------------


def test_sync_tells_what_is_durable(path: Path) -> None:
    """Its answer is the last number appended before it."""
    writer = LogWriter(path, RUN_ID, segment_bytes=500)
    unsynced = [writer.unsynced]
    for n in range(30):
        writer.append(output(str(n)))
    unsynced.append(writer.unsynced)
    assert writer.sync() == 30
    unsynced.append(writer.unsynced)
    writer.append(output("more"))
    unsynced.append(writer.unsynced)
    assert writer.sync() == 31
    assert unsynced == [False, True, False, True]
    writer.close()


def test_appends_and_rotations_go_on_while_a_sync_blocks(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow disk never makes a stop wait; no file is closed under a running sync."""
    writer = LogWriter(path, RUN_ID, segment_bytes=500)
    writer.append(output("first"))
    entered, leave = threading.Event(), threading.Event()
    synced: list[int] = []

    def slow(fd: int) -> None:
        entered.set()
        assert leave.wait(30)
        os.fstat(fd)  # fails if somebody closed it meanwhile
        synced.append(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    answers: list[int] = []
    thread = threading.Thread(target=lambda: answers.append(writer.sync()))
    thread.start()
    assert entered.wait(30)
    for n in range(50):
        writer.append(output(f"while it syncs {n}"))
    leave.set()
    thread.join(30)
    assert answers == [1]
    assert writer.sync() == 51
    assert len(set(synced)) > 1
    assert not writer.unsynced
    writer.close()


def test_closing_does_not_wait_for_a_sync(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a run waits for no disk; the descriptors go when the sync is done."""
    writer = LogWriter(path, RUN_ID, segment_bytes=100)
    for n in range(5):
        writer.append(output(f"record {n}"))
    entered, leave = threading.Event(), threading.Event()
    synced: list[int] = []

    def slow(fd: int) -> None:
        entered.set()
        assert leave.wait(30)
        os.fstat(fd)
        synced.append(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    thread = threading.Thread(target=writer.sync)
    thread.start()
    assert entered.wait(30)
    writer.close()
    leave.set()
    thread.join(30)
    assert len(synced) == 5
    assert not [fd for fd in os.listdir("/proc/self/fd") if _is_in(path, fd)]


def _is_in(path: Path, fd: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith(str(path))
    except OSError:
        return False


def test_a_failed_sync_is_never_forgotten(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells of lost pages once; a second sync must not call them safe."""
    writer = LogWriter(path, RUN_ID)
    writer.append(output("x"))

    def fail(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(LogFullError, match="Input/output error"):
            writer.sync()
    with pytest.raises(LogFullError):
        writer.sync()
    assert writer.unsynced
    writer.close()


def test_the_first_sync_makes_the_names_durable_too(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that survives a power loss without its directory entry, or its spec, is lost."""
    (path / "spec").write_text("{}")
    writer = LogWriter(path, RUN_ID)
    writer.append(output("x"))
    synced: list[str] = []
    real = os.fsync

    def note(fd: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", note)
    writer.sync()
    assert {str(path / "spec"), str(path), str(path.parent)} <= set(synced)
    synced.clear()
    writer.append(output("y"))
    writer.sync()
    assert synced == []
    writer.close()


# --- full disks -------------------------------------------------------------


def test_a_write_that_fails_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC is an error with a name, and the log is as it was."""
    writer = LogWriter(path, RUN_ID)
    writer.append(output("before"))
    size, number = writer.size, writer.next_seq

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(LogFullError, match="No space left") as caught:
            writer.append(output("never"))
    assert caught.value.hint
    assert (writer.size, writer.next_seq) == (size, number)
    writer.append(output("after"))
    writer.close()
    assert read_log(path)[0] == ["before", "after"]


def test_half_a_write_is_cut_off_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills in the middle of a record leaves no half of it behind."""
    writer = LogWriter(path, RUN_ID)
    writer.append(output("before"))
    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[: len(data) // 2]))
        with pytest.raises(LogFullError):
            writer.append(output("never"))
        with pytest.raises(LogFullError):
            writer.append_batch([(output("nor these"), By.SUPERVISOR, 1)] * 3)
    writer.append(output("after"))
    writer.close()
    texts, reader = read_log(path)
    assert texts == ["before", "after"]
    assert (reader.damaged, reader.torn_bytes) == ([], 0)


def test_what_cannot_be_cut_off_ends_the_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appending behind half a record would turn a torn tail into damage."""
    writer = LogWriter(path, RUN_ID)
    writer.append(output("before"))
    real = os.write

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: real(fd, data[:10]))
        patch.setattr(os, "ftruncate", fail)
        with pytest.raises(LogFullError):
            writer.append(output("never"))
    with pytest.raises(LogFullError, match="could not be cut off"):
        writer.append(output("nor this"))
    writer.close()
    texts, reader = read_log(path)
    assert texts == ["before"]
    assert (reader.torn_bytes, reader.damaged) == (10, [])


def test_a_closed_log_takes_nothing(path: Path) -> None:
    """Nothing is written through a descriptor that has come to mean another file."""
    writer = LogWriter(path, RUN_ID)
    writer.close()
    writer.close()
    with pytest.raises(LogFullError, match="closed"):
        writer.append(output("x"))


def test_a_file_size_limit_is_a_full_disk(path: Path) -> None:
    """RLIMIT_FSIZE gives short writes and EFBIG; the log stays whole."""
    program = """
        import resource, signal, sys
        from agentctl_supervisor.errors import LogFullError
        from agentctl_supervisor.store.event_log import LogWriter
        from agentctl_testkit.log import RUN_ID, output
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        writer = LogWriter(sys.argv[1], RUN_ID)
        count = 0
        try:
            while True:
                writer.append(output("x" * 700))
                count += 1
        except LogFullError as error:
            print(count, writer.next_seq)
    """
    shown = _run(program, str(path))
    count, next_seq = map(int, shown.split())
    assert next_seq == count + 1
    texts, reader = read_log(path)
    assert len(texts) == count > 50
    assert (reader.torn_bytes, reader.damaged) == (0, [])


@needs(Capability.ROOT)
def test_on_a_full_disk_the_reserve_takes_the_end(path: Path) -> None:
    """A real file system with no room: the log is whole, and the last records find place."""
    program = """
        import os, subprocess, sys
        from agentctl_supervisor.errors import LogFullError
        from agentctl_supervisor.store.event_log import LogWriter
        from agentctl_testkit.log import RUN_ID, output, read_log
        mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", sys.argv[1]]
        subprocess.run(mount, check=True)
        writer = LogWriter(sys.argv[1], RUN_ID)
        count = 0
        try:
            while True:
                writer.append(output("x" * 700))
                count += 1
        except LogFullError:
            pass
        full = False
        try:
            writer.append(output("y" * 5000))
        except LogFullError:
            full = True
        writer.use_reserve()
        for n in range(15):
            writer.append(output("z" * 700))
        texts, reader = read_log(sys.argv[1])
        print(full, len(texts) == count + 15, reader.torn_bytes, reader.damaged)
    """
    shown = _run(program, str(path), before=["unshare", "-m", "--propagation", "private"])
    assert shown.strip() == "True True 0 []"


def test_the_reserve_takes_room_and_goes_when_used(path: Path) -> None:
    """It is allocated, not only long, and leaves with the writer."""
    writer = LogWriter(path, RUN_ID)
    reserve = (path / "reserve").stat()
    assert reserve.st_size == RESERVE_BYTES
    assert reserve.st_blocks * 512 >= RESERVE_BYTES
    writer.use_reserve()
    writer.use_reserve()
    assert not (path / "reserve").exists()
    writer.close()


def test_a_directory_that_takes_no_files_is_a_named_error(tmp_path: Path) -> None:
    """There is no traceback where a log cannot even begin."""
    with pytest.raises(AgentctlError, match="log cannot be read"):
        LogWriter(tmp_path / "missing", RUN_ID)
    with pytest.raises(LogFullError, match="cannot write its log"):
        LogWriter(tmp_path / "missing", RUN_ID, end=LogEnd(1, 0, 1, 0))


# --- killed -----------------------------------------------------------------


@pytest.mark.parametrize("round_", range(8))
def test_a_killed_writer_loses_nothing_that_it_had_appended(path: Path, round_: int) -> None:
    """SIGKILL at any instant: every append that returned is there, whole and in order."""
    program = """
        import os, sys
        from agentctl_supervisor.store.event_log import LogWriter
        from agentctl_testkit.log import RUN_ID, output
        writer = LogWriter(sys.argv[1], RUN_ID, segment_bytes=64 << 10)
        n = 0
        while True:
            writer.append(output(str(n) + "x" * (n * 37 % 3000)))
            os.write(1, b"%d\\n" % n)
            n += 1
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(path)],
        stdout=subprocess.PIPE,
        env=_environment(),
    )
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(50 + 97 * round_)]
    process.send_signal(signal.SIGKILL)
    lines += process.stdout.read().splitlines(keepends=True)
    process.wait()
    process.stdout.close()
    acknowledged = [int(line) for line in lines if line.endswith(b"\n")]
    texts, reader = read_log(path)
    found = [int(text.rstrip("x")) for text in texts]
    assert found == list(range(len(found)))
    assert acknowledged[-1] < len(found) <= acknowledged[-1] + 2
    assert reader.damaged == []


def test_a_live_log_can_be_followed_by_reading_it_again(path: Path) -> None:
    """A reader beside a busy, rotating writer sees a beginning of the log, and no damage."""
    writer = LogWriter(path, RUN_ID, segment_bytes=4096)
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.is_set() and n < 20_000:
            writer.append(output(str(n)))
            n += 1

    thread = threading.Thread(target=write)
    thread.start()
    last = 0
    try:
        for _ in range(20):
            texts, reader = read_log(path)
            assert [int(text) for text in texts] == list(range(len(texts)))
            assert reader.damaged == []
            assert len(texts) >= last
            last = len(texts)
    finally:
        stop.set()
        thread.join()
        writer.close()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


def _run(program: str, *arguments: str, before: list[str] | None = None) -> str:
    done = subprocess.run(
        [*(before or []), sys.executable, "-c", textwrap.dedent(program), *arguments],
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
