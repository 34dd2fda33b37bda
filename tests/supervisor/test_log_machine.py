"""A log with one writer, which is killed, or loses power, in the middle of any record.

The model is a list of what was appended and where each record ends.  Real files; a crash cuts
them off at a byte.
"""

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from agentctl_protocol.messages import (
    CallFinished,
    Checkpoint,
    Events,
    Message,
    ResultMessage,
    Text,
    Usage,
)
from agentctl_protocol.records import (
    RECORD_HEADER,
    Exit,
    Output,
    Record,
    RecordBody,
    Started,
    Stop,
    VerdictRecord,
    segment_header,
)
from agentctl_protocol.report import Actor
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.values import pack_value
from agentctl_protocol.vocabulary import By, Reason, Result
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.store.event_log import LogWriter
from agentctl_supervisor.store.log_follower import LogFollower
from agentctl_supervisor.store.log_reader import LogReader, segment_name
from agentctl_testkit.log import RUN_ID

SPEC: Final = RunSpec(target="module:function")
SEGMENT_BYTES: Final = 400

ToAppend: TypeAlias = tuple[RecordBody, By, int]

_EVENTS: Final = Events(first=1, events=[Text("a piece "), Usage("m", "1", 3, 4), Text("of text")])
_RECORDS: Final[Sequence[ToAppend]] = [
    (Started(layers=("pid namespace",)), By.SUPERVISOR, 1),
    (Output("stdout", b"x"), By.SUPERVISOR, 1),
    (Output("stderr", b"y" * 300), By.SUPERVISOR, 1),
    (Output("stdout", b"z" * 500), By.SUPERVISOR, 1),
    (_EVENTS, By.CHILD, 3),
    (Events(first=4, events=[Message("m"), Checkpoint(pack_value([1]))]), By.CHILD, 2),
    (VerdictRecord("1", "model", "m", "granted", args=pack_value({"q": 1})), By.SUPERVISOR, 1),
    (CallFinished("1", "ok", pack_value("answer")), By.CHILD, 1),
    (ResultMessage(pack_value(42)), By.CHILD, 1),
    (Stop(Result.STOPPED, Reason.USER, "", Actor("uid", "0"), 5, 2), By.SUPERVISOR, 1),
    (Exit(code=0), By.SUPERVISOR, 1),
]


class Appended(NamedTuple):
    """A record of the model; ``end`` is where it ends in the whole log."""

    record: Record
    end: int


class Crashing(RuleBasedStateMachine):
    """One log, the writers that hold it one after the other, and a reader that follows."""

    def __init__(self) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(prefix="agentctl-log-"))
        self.writer = LogWriter(self.path, RUN_ID, segment_bytes=SEGMENT_BYTES)
        self.model: list[Appended] = []
        self.before_last_write = 0
        self.durable = 0
        self.follow_from_the_beginning()

    def teardown(self) -> None:
        self.writer.close()
        shutil.rmtree(self.path)

    def follow_from_the_beginning(self) -> None:
        """A reader like that of a live supervisor: it dies with its machine."""
        self.follower = LogFollower(self.path, RUN_ID)
        self.followed = Fold(RUN_ID, SPEC)

    @rule(one_write=st.lists(st.sampled_from(_RECORDS), min_size=1, max_size=3))
    def append(self, one_write: list[ToAppend]) -> None:
        self.before_last_write = self.writer.size
        if len(one_write) == 1:
            appended = [self.writer.append(*one_write[0])]
        else:
            appended = self.writer.append_batch(one_write)
        # Backwards: what a segment begins with is before the first of them.
        end, added = self.writer.size, []
        for (seq, time_ns), (body, by, _count) in zip(
            reversed(appended), reversed(one_write), strict=True
        ):
            added.append(Appended(Record(seq, time_ns, by, body), end))
            end -= RECORD_HEADER.size + len(msgspec.msgpack.encode(body))
        self.model += reversed(added)

    def sizes(self) -> list[int]:
        """The lengths of the segments, in order."""
        return [path.stat().st_size for path in sorted(self.path.glob("*.log"))]

    @rule()
    def sync(self) -> None:
        assert self.writer.sync() == self.writer.next_seq - 1
        assert not self.writer.unsynced
        self.durable = self.writer.size

    @rule(data=st.data(), power=st.booleans())
    def crash(self, data: st.DataObject, power: bool) -> None:
        """Killed in its last write; or without power, and then all that was not synced may go."""
        least = self.durable if power else max(self.durable, self.before_last_write)
        at = data.draw(st.integers(least, self.writer.size))
        self.writer.close()
        self.cut(at)
        self.model = [appended for appended in self.model if appended.end <= at]
        whole = self.model[-1].end if self.model else 0

        reader = LogReader(self.path, RUN_ID)
        assert list(reader) == [appended.record for appended in self.model]
        assert reader.damaged == []
        assert reader.bytes + reader.torn_bytes == at
        # A segment may have got as far as its header, which is no record and stays.
        assert reader.bytes in (whole, whole + len(segment_header(RUN_ID)))

        self.writer = LogWriter(self.path, RUN_ID, segment_bytes=SEGMENT_BYTES)
        assert (self.writer.size, self.writer.cut_bytes) == (reader.bytes, reader.torn_bytes)
        self.before_last_write = self.durable = self.writer.size
        self.follow_from_the_beginning()

    def cut(self, at: int) -> None:
        """Leave the first *at* bytes of the log.  A new segment that got none is left empty."""
        for number, size in enumerate(self.sizes(), 1):
            path = self.path / segment_name(number)
            if at < 0:
                path.unlink()
            elif at < size:
                with path.open("r+b") as file:
                    file.truncate(at)
            at = -1 if at < size else at - size

    @rule()
    def follower_looks(self) -> None:
        for record in self.follower.read():
            self.followed.apply(record)
        assert self.followed.report() == self.fold(self.model).report()

    @rule(data=st.data())
    def fold_is_replayed(self, data: st.DataObject) -> None:
        """From any prefix, and then all of it or the rest: it comes to the same."""
        at = data.draw(st.integers(0, len(self.model)))
        whole = self.fold(self.model).report()
        assert self.fold(self.model[:at], self.model[at:]).report() == whole
        assert self.fold(self.model[:at], self.model).report() == whole

    def fold(self, *parts: Sequence[Appended]) -> Fold:
        """What the records of *parts* mean."""
        fold = Fold(RUN_ID, SPEC)
        for part in parts:
            for appended in part:
                fold.apply(appended.record)
        return fold

    @invariant()
    def the_log_is_the_model(self) -> None:
        reader = LogReader(self.path, RUN_ID)
        assert list(reader) == [appended.record for appended in self.model]
        assert (reader.damaged, reader.torn_bytes, reader.unknown) == ([], 0, 0)
        last = self.model[-1].record if self.model else None
        taken = 0
        if last is not None:
            count = len(last.body.events) if isinstance(last.body, Events) else 1
            taken = last.seq + count - 1
        assert self.writer.next_seq == taken + 1


def test_a_log_survives_crashes_at_any_byte() -> None:
    """What was written whole is read, what was durable is there, and writing goes on behind it."""
    run_state_machine_as_test(Crashing, settings=settings(max_examples=40, stateful_step_count=20))
