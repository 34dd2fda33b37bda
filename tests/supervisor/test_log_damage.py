"""One test for each way in which a log can be hurt: what is read, what is lost, what is said."""

import os
import random
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentctl_protocol.messages import Events, Text
from agentctl_protocol.records import MAX_BODY, RECORD_HEADER, SEGMENT_HEADER, segment_header
from agentctl_protocol.vocabulary import By
from agentctl_supervisor.errors import AgentctlError, DamagedRunError, UnknownLogVersionError
from agentctl_supervisor.store.event_log import LogWriter
from agentctl_supervisor.store.log_reader import LogReader
from agentctl_testkit.log import RUN_ID, LogFile, output, packed, read_log

FIVE = ["one", "two", "three", "four", "five"]
HEADER = RECORD_HEADER.size


@pytest.fixture
def log(tmp_path: Path) -> LogFile:
    return LogFile.write(tmp_path, FIVE)


def test_an_undamaged_log_reads_back_whole(log: LogFile) -> None:
    """Nothing is torn, damaged or unknown in a log that nobody hurt."""
    texts, reader = log.read()
    assert texts == FIVE
    assert (reader.torn_bytes, reader.damaged, reader.unknown) == (0, [], 0)
    assert reader.bytes == log.segment().stat().st_size


# --- torn tails: normal after a kill, no alarm ------------------------------


@pytest.mark.parametrize("left", [1, HEADER - 1, HEADER, HEADER + 5])
def test_half_a_last_record_is_a_torn_tail(log: LogFile, left: int) -> None:
    """A writer killed inside an append costs the record it was writing, and raises no alarm."""
    offsets = log.offsets()
    log.shrink(offsets[-1] - offsets[-2] - left)
    texts, reader = log.read()
    assert texts == FIVE[:-1]
    assert (reader.torn_bytes, reader.damaged) == (left, [])


def test_a_last_record_with_a_bad_checksum_is_a_torn_tail(log: LogFile) -> None:
    """A power loss may leave a last record of the right length with the wrong bytes."""
    offsets = log.offsets()
    log.flip(offsets[-1] - 1)
    texts, reader = log.read()
    assert texts == FIVE[:-1]
    assert (reader.torn_bytes, reader.damaged) == (offsets[-1] - offsets[-2], [])


@pytest.mark.parametrize("count", [1, HEADER, 4096, 3 << 20])
def test_zeros_behind_the_last_record_are_a_torn_tail(log: LogFile, count: int) -> None:
    """A file system gives zeros for what had not been written when the power went."""
    log.grow(bytes(count))
    texts, reader = log.read()
    assert texts == FIVE
    assert (reader.torn_bytes, reader.damaged) == (count, [])


def test_a_torn_record_that_holds_something_like_records_forges_none(log: LogFile) -> None:
    """An agent that writes records to its stdout gets none into the log by a torn tail."""
    forged = packed(7, msgspec.msgpack.encode(output("forged")))
    body = msgspec.msgpack.encode(output("")) + forged * 3 + b"rest of a long line" * 50
    log.grow(packed(6, body)[:-100])
    texts, reader = log.read()
    assert texts == FIVE
    assert reader.torn_bytes > 0


@pytest.mark.parametrize("size", [0, 5, SEGMENT_HEADER.size, SEGMENT_HEADER.size + 3])
def test_a_segment_that_was_only_begun_is_a_torn_tail(log: LogFile, size: int) -> None:
    """A writer killed between making a segment and its first record loses nothing."""
    log.segment(2).write_bytes(segment_header(RUN_ID)[:size])
    texts, reader = log.read()
    assert texts == FIVE
    assert (reader.torn_bytes, reader.damaged) == (size, [])


def test_an_empty_directory_is_an_empty_log(tmp_path: Path) -> None:
    """A supervisor killed before its first append leaves a log of nothing."""
    texts, reader = read_log(tmp_path)
    assert (texts, reader.bytes, reader.end, reader.damaged) == ([], 0, None, [])


# --- damage: reported in words, and read over -------------------------------


@pytest.mark.parametrize(
    ("at", "said"),
    [(4, "bad checksum"), (HEADER + 3, "bad checksum"), (16, "bad checksum"), (24, "bad checksum")],
)
def test_a_flipped_byte_costs_one_record(log: LogFile, at: int, said: str) -> None:
    """In checksum, body, time or writer: the record is skipped, and the report says so."""
    start, end = log.offsets()[2:4]
    log.flip(start + at)
    texts, reader = log.read()
    assert texts == ["one", "two", "four", "five"]
    assert reader.torn_bytes == 0
    assert reader.damaged == [f"segment 1: {end - start} bytes skipped at offset {start}: {said}"]


def test_a_flipped_number_costs_one_record(log: LogFile) -> None:
    """A record whose sequence number is no longer its own is skipped."""
    start, end = log.offsets()[2:4]
    log.flip(start + 15)
    texts, reader = log.read()
    assert texts == ["one", "two", "four", "five"]
    assert reader.damaged == [
        f"segment 1: {end - start} bytes skipped at offset {start}: bad checksum"
    ]


@pytest.mark.parametrize("length", [0, 1, 9, 40, 1000, MAX_BODY, MAX_BODY + 1, 0xFFFF_FFFF])
def test_a_lying_length_costs_one_record(log: LogFile, length: int) -> None:
    """Too short, too long, past the end, absurd: the next record is found all the same."""
    start, end = log.offsets()[1:3]
    log.set_bytes(start, length.to_bytes(4, "big"))
    texts, reader = log.read()
    assert texts == ["one", "three", "four", "five"]
    assert reader.torn_bytes == 0
    assert len(reader.damaged) == 1
    assert f"{end - start} bytes skipped at offset {start}" in reader.damaged[0]


def test_bytes_put_between_records_are_skipped(log: LogFile) -> None:
    """Garbage between two records costs neither of them."""
    data, at = log.segment().read_bytes(), log.offsets()[3]
    log.segment().write_bytes(data[:at] + random.Random(1).randbytes(10_000) + data[at:])
    texts, reader = log.read()
    assert texts == FIVE
    assert "10,000 bytes skipped" in reader.damaged[0]


def test_two_halves_of_different_records_never_join(log: LogFile) -> None:
    """A hole from the middle of one record to the middle of another loses both, and says so."""
    data, offsets = log.segment().read_bytes(), log.offsets()
    log.segment().write_bytes(data[: offsets[1] + 30] + data[offsets[3] + 30 :])
    texts, reader = log.read()
    assert texts == ["one", "five"]
    assert len(reader.damaged) == 1


def test_a_record_that_is_missing_is_missed(log: LogFile) -> None:
    """A gap between whole records shows by their numbers."""
    data, offsets = log.segment().read_bytes(), log.offsets()
    log.segment().write_bytes(data[: offsets[1]] + data[offsets[3] :])
    texts, reader = log.read()
    assert texts == ["one", "four", "five"]
    assert reader.damaged == [f"segment 1: at offset {offsets[1]} records 2 to 3 are missing"]


def test_a_record_that_comes_again_counts_once(log: LogFile) -> None:
    """A copy of a part of the log changes nothing but what the report says."""
    data, offsets = log.segment().read_bytes(), log.offsets()
    log.segment().write_bytes(data + data[offsets[1] : offsets[2]])
    texts, reader = log.read()
    assert texts == FIVE
    assert "record 2 comes again" in reader.damaged[0]


def test_damage_and_a_torn_tail_are_told_apart(log: LogFile) -> None:
    """Both in one log: one is reported, the other counted."""
    offsets = log.offsets()
    log.flip(offsets[1] + 20)
    log.shrink(3)
    texts, reader = log.read()
    assert texts == ["one", "three", "four"]
    assert reader.torn_bytes == offsets[-1] - offsets[-2] - 3
    assert len(reader.damaged) == 1


def test_a_record_that_is_no_msgpack_is_reported(log: LogFile) -> None:
    """A right checksum over nonsense is not passed over."""
    log.grow(packed(6, b"\xc1") + packed(7, msgspec.msgpack.encode(output("seven"))))
    texts, reader = log.read()
    assert texts == [*FIVE, "seven"]
    assert "record 6 is unreadable" in reader.damaged[0]


def test_a_record_nested_too_deeply_is_reported(log: LogFile) -> None:
    """Nesting exhausts no stack."""
    log.grow(packed(6, b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0"))
    log.grow(packed(7, msgspec.msgpack.encode(output("seven"))))
    texts, reader = log.read()
    assert texts == [*FIVE, "seven"]
    assert reader.damaged or reader.unknown == 1


# --- what a newer version wrote ---------------------------------------------


def test_a_record_of_unknown_type_is_skipped_and_counted(log: LogFile) -> None:
    """What a newer agentctl adds does not make a log unreadable, whatever numbers it takes."""
    log.grow(packed(6, msgspec.msgpack.encode({"type": "hologram"})))
    log.grow(packed(9, msgspec.msgpack.encode(output("nine"))))
    texts, reader = log.read()
    assert texts == [*FIVE, "nine"]
    assert (reader.unknown, reader.damaged) == (1, [])


def test_a_log_of_another_version_is_refused_by_name(log: LogFile) -> None:
    """Guessing at a format would be worse than saying which one is wanted."""
    log.set_bytes(8, (7).to_bytes(4, "big"))
    with pytest.raises(UnknownLogVersionError, match="format version 7") as caught:
        log.read()
    assert caught.value.hint


# --- segments ---------------------------------------------------------------


@pytest.fixture
def segments(tmp_path: Path) -> LogFile:
    log = LogFile.write(tmp_path, [f"record {n}" for n in range(40)], segment_bytes=600)
    assert log.segment(4).exists()
    return log


def test_records_go_on_over_segments(segments: LogFile) -> None:
    """A log reads as one, however many files it has."""
    texts, reader = segments.read()
    assert texts == segments.texts
    assert reader.damaged == []


def test_a_missing_segment_is_named(segments: LogFile) -> None:
    """What is behind it can be read."""
    before, behind = len(segments.offsets(1)) - 1, len(segments.offsets(2)) - 1
    segments.segment(2).unlink()
    texts, reader = segments.read()
    assert texts == segments.texts[:before] + segments.texts[before + behind :]
    assert reader.damaged == ["segment 2 is missing"]


def test_a_missing_first_segment_is_named(segments: LogFile) -> None:
    """A log without its beginning is read from where it begins."""
    behind = len(segments.offsets(1)) - 1
    segments.segment(1).unlink()
    texts, reader = segments.read()
    assert texts == segments.texts[behind:]
    assert reader.damaged == ["segment 1 is missing"]


def test_a_cut_in_the_middle_segment_is_damage(segments: LogFile) -> None:
    """Only the end of the last segment can be torn."""
    last = segments.offsets(2)[-1] - segments.offsets(2)[-2]
    segments.shrink(5, 2)
    texts, reader = segments.read()
    assert len(texts) == len(segments.texts) - 1
    assert reader.torn_bytes == 0
    assert f"segment 2: {last - 5} bytes skipped" in reader.damaged[0]


def test_an_emptied_middle_segment_is_damage(segments: LogFile) -> None:
    """A file that lost all its bytes is not passed over."""
    segments.segment(2).write_bytes(b"")
    _, reader = segments.read()
    assert "segment 2" in reader.damaged[0]


def test_a_segment_with_wrong_magic_is_reported_and_searched(segments: LogFile) -> None:
    """A damaged header costs no record."""
    segments.set_bytes(0, b"NOTALOG!", 2)
    texts, reader = segments.read()
    assert texts == segments.texts
    assert "segment 2" in reader.damaged[0]
    assert "bad magic" in reader.damaged[0]


def test_a_segment_of_another_run_is_not_read(segments: LogFile) -> None:
    """Whatever its numbers, another run's file is not part of this log."""
    segments.set_bytes(SEGMENT_HEADER.size, b"r-anothers", 3)
    texts, reader = segments.read()
    assert len(texts) < len(segments.texts)
    assert "belongs to another run, 'r-anothers'" in reader.damaged[0]


def test_files_that_are_no_segments_are_left_alone(segments: LogFile) -> None:
    """Editors' copies and the like are none of our business."""
    for name in ("notes.txt", "1.log", "0000000x.log", "00000002.log~"):
        (segments.path / name).write_bytes(b"garbage")
    texts, reader = segments.read()
    assert (texts, reader.damaged) == (segments.texts, [])


@pytest.mark.parametrize("kind", ["directory", "link", "fifo"])
def test_a_segment_that_is_no_file_gives_a_named_error(log: LogFile, kind: str) -> None:
    """Nothing hangs, follows a link or shows a traceback."""
    path = log.segment(2)
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to("/etc/passwd")
    else:
        os.mkfifo(path)
    with pytest.raises(DamagedRunError, match=RUN_ID):
        log.read()


# --- files that were made to hurt -------------------------------------------


def test_headers_that_all_claim_a_megabyte_cost_bounded_work(log: LogFile) -> None:
    """A search that gives up says so; its work does not grow with the square of the file."""
    offset = log.offsets()[-1]
    hostile = RECORD_HEADER.pack(1 << 20, 0, 6, 1, By.SUPERVISOR) * 120_000
    log.grow(b"\xff" * HEADER + hostile)
    texts, reader = log.read()
    assert texts == FIVE
    assert f"at offset {offset}" in reader.damaged[0]
    assert "too much like records" in reader.damaged[0]
    # What cannot be read is not appended to: it would not be found again.
    assert reader.end is not None
    assert reader.end.segment == 2


def test_a_thousand_damaged_places_make_a_short_report(tmp_path: Path) -> None:
    """What is said about damage is bounded, and says that it was cut."""
    log = LogFile.write(tmp_path, [f"record {n}" for n in range(1000)])
    for offset in log.offsets()[1:-1:2]:
        log.flip(offset + HEADER)
    texts, reader = log.read()
    assert len(texts) == 500
    assert len(reader.damaged) == 101
    # The last of the 500 places is a torn tail.
    assert reader.damaged[-1] == "and 399 more places"


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """A log is streamed."""
    log = LogFile.write(tmp_path, ["x" * 100_000] * 200)
    tracemalloc.start()
    count = sum(1 for _ in LogReader(log.path, RUN_ID))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 200
    assert peak < 3 << 20


# --- any damage at all ------------------------------------------------------


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cut=st.integers(min_value=0))
def test_every_whole_record_before_a_cut_is_read(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    """Wherever a log is cut, all before the cut is read, the rest counted, and nobody alarmed."""
    log = LogFile.write(tmp_path_factory.mktemp("cut"), FIVE)
    data, offsets = log.segment().read_bytes(), log.offsets()
    cut %= len(data) + 1
    log.segment().write_bytes(data[:cut])
    texts, reader = log.read()
    whole = sum(1 for end in offsets[1:] if end <= cut)
    assert texts == FIVE[:whole]
    assert reader.torn_bytes == cut - (offsets[whole] if cut >= offsets[0] else 0)
    assert reader.damaged == []


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_random_damage_gives_named_errors_or_records_that_were_written(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """No byte that is changed makes a record that nobody wrote, a crash, or silence."""
    texts = [f"record {n}" for n in range(12)]
    log = LogFile.write(tmp_path_factory.mktemp("flip"), texts, segment_bytes=300)
    number = data.draw(st.sampled_from([1, 2, 3]))
    size = log.segment(number).stat().st_size
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, size - 1))
        log.set_bytes(at, data.draw(st.binary(min_size=1, max_size=min(8, size - at))), number)
    try:
        found, reader = log.read()
    except AgentctlError:
        return
    assert set(found) <= set(texts)
    assert found == sorted(found, key=texts.index)
    assert found == texts or reader.damaged or reader.torn_bytes


@settings(max_examples=200, deadline=None)
@given(garbage=st.binary(max_size=400))
def test_any_bytes_are_read_or_named(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes
) -> None:
    """A file of anything is a log with nothing in it, or an error with a name."""
    path = tmp_path_factory.mktemp("garbage")
    (path / "00000001.log").write_bytes(garbage)
    try:
        texts, reader = read_log(path)
    except AgentctlError:
        return
    assert texts == []
    assert reader.bytes + reader.torn_bytes == len(garbage)


def test_a_damaged_tail_is_never_appended_to(log: LogFile) -> None:
    """After damage that goes to the end a writer begins a new segment, so that both are kept."""
    log.segment(2).write_bytes(b"something else altogether")
    writer = LogWriter(log.path, RUN_ID)
    writer.append(Events(first=1, events=[Text("hello"), Text("world")]), By.CHILD, 2)
    writer.append(output("after"))
    writer.close()
    texts, reader = log.read()
    assert texts == [*FIVE, "after"]
    assert "segment 2: 25 bytes skipped at offset 0: bad magic" in reader.damaged[0]
    assert log.segment(2).read_bytes() == b"something else altogether"
