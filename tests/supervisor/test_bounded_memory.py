"""What an agent can make us remember is bounded in bytes, and what is over is refused or told."""

import tracemalloc
from collections.abc import Callable, Iterator

import msgspec
import pytest

from agentctl_protocol import messages as m
from agentctl_protocol.records import Record, VerdictRecord, Waiting
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.values import open_value, pack_value
from agentctl_protocol.vocabulary import By
from agentctl_supervisor.conditions.functions import MAX_EVENT_BYTES
from agentctl_supervisor.conditions.judge import Judge
from agentctl_supervisor.conditions.leaves import FunctionalTermination, TokenUsageTermination
from agentctl_supervisor.gate.call_rules import CallRules
from agentctl_supervisor.gate.gate import MAX_WAITING_BYTES, Gate
from agentctl_supervisor.gate.used_ids import UsedIds
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.run.output import _Tail

WIDE = "\U0010ffff"
"""A character of four bytes: the widest there is."""


def _id(number: int) -> str:
    return f"{number:08}".ljust(128, WIDE)


def _megabytes(work: Callable[[], object]) -> float:
    """What *work* leaves behind in memory; it returns what is to be kept."""
    tracemalloc.start()
    try:
        kept = work()
        return tracemalloc.get_traced_memory()[0] / 1e6 if kept is not None else 0.0
    finally:
        tracemalloc.stop()


def test_ids_of_calls_cost_a_few_bytes_each_however_long_they_are() -> None:
    """A hundred thousand of the longest ids fit into four megabytes; each is known again."""

    def work() -> UsedIds:
        used = UsedIds()
        for number in range(100_000):
            used.add(_id(number))
        return used

    assert _megabytes(work) < 4
    used = UsedIds()
    for number in range(1000):
        assert _id(number) not in used
        used.add(_id(number))
        used.add(_id(number))
        assert _id(number) in used
    assert len(used) == 1000


def test_arguments_that_wait_for_a_person_are_bounded_together() -> None:
    """One ask more than there is room for is refused, in words; a decision makes room."""
    gate = Gate(CallRules(approve=["*"]))
    args = pack_value("x" * (MAX_WAITING_BYTES // 8))
    said = [gate.judge(m.Ask(f"c{n}", "tool", "t", args)) for n in range(9)]
    assert all(isinstance(one, Waiting) for one in said[:7])
    last = said[-1]
    assert isinstance(last, VerdictRecord)
    assert last.why == "the calls that wait for approval are too long together"
    gate.close("over")


def _events() -> Iterator[m.Event]:
    for number in range(6000):
        yield m.Usage(model=f"{number}" + WIDE * 4000, call=f"{number}" + WIDE * 4000)
        yield m.Artifact(path=f"{number}" + WIDE * 200)
        yield m.Text(text="x", source=WIDE * 300, call=_id(number))


def test_what_a_fold_keeps_of_events_and_calls_is_bounded() -> None:
    """Thousands of long names, ids, errors and results: some tens of megabytes, not hundreds."""

    def work() -> Fold:
        fold, seq = Fold("r-aaaaaaaa", RunSpec(target="m:f")), 1
        for event in _events():
            fold.apply(Record(seq, seq, By.CHILD, m.Events(first=seq, events=[event])))
            seq += 1
        for number in range(6000):
            call = VerdictRecord(_id(number), "model", WIDE * 256, "granted")
            fold.apply(Record(seq, seq, By.SUPERVISOR, call))
            if number % 2:
                # A view of a long message, as the channel gives it.
                raw = msgspec.msgpack.encode(
                    m.CallFinished(_id(number), "error", pack_value(1), "e" * 20_000)
                )
                finished = msgspec.msgpack.decode(raw, type=m.CallFinished)
                fold.apply(Record(seq + 1, seq, By.CHILD, finished))
            seq += 2
        return fold

    assert _megabytes(work) < 60


def test_events_that_wait_for_a_function_are_bounded_in_bytes() -> None:
    """The oldest are missed, and the function's next question says how many."""
    judge = Judge(FunctionalTermination(lambda _: False), 0.0)
    for _ in range(100):
        judge.feed(m.Text("x" * (1 << 20)), 0.0)
    [question] = judge.questions()
    assert len(question.events) + question.missed == 100
    assert sum(len(event.text) for event in question.events) <= MAX_EVENT_BYTES


def test_ids_that_a_condition_on_tokens_remembers_are_bounded() -> None:
    """An event's call may be named by a megabyte."""
    judge = Judge(TokenUsageTermination(max_total_token=1 << 60), 0.0)

    def work() -> Judge:
        for number in range(50):
            judge.feed(m.Usage(call=f"{number}" + "x" * (1 << 20), prompt_tokens=1), 0.0)
        return judge

    assert _megabytes(work) < 3


@pytest.mark.parametrize("limit", [0, 10, 1000])
def test_the_end_of_an_output_costs_its_bytes_and_no_objects(limit: int) -> None:
    """A stream that comes byte by byte is kept like any other."""
    tail, said = _Tail(limit), bytes(n % 251 for n in range(200_000))

    def work() -> _Tail:
        for n in range(len(said)):
            tail.add(said[n : n + 1])
        return tail

    assert _megabytes(work) < 0.5
    assert tail.bytes() == said[len(said) - limit :]


def test_a_value_of_nothing_but_lists_is_in_no_report() -> None:
    """A byte on the wire is seventy in memory: of too many, the report has a note."""
    fold = Fold("r-aaaaaaaa", RunSpec(target="m:f"))
    count = (1 << 19) + 1
    value = msgspec.Raw(b"\xdd" + count.to_bytes(4) + b"\x90" * count)
    fold.apply(Record(1, 1, By.CHILD, m.ResultMessage(value)))
    report = fold.report()
    assert report.value is None
    assert report.log.damaged == ("bad value: more than 524,288 lists and maps",)
    for number in range(2, 200, 2):
        call = VerdictRecord(f"c{number}", "tool", "t", "granted", args=pack_value([[]] * 4000))
        fold.apply(Record(number, 1, By.SUPERVISOR, call))
    args = [call.args for call in fold.report().calls]
    assert args[0] == [[]] * 4000
    assert args[-1] == "(omitted; it is in the log)"


@pytest.mark.parametrize("value", [[[]] * 5000, {"a": [{"b": "é" * 9000}] * 2000}, [[1, 2]] * 9000])
def test_a_large_value_is_opened_in_steps_and_is_the_same(value: object) -> None:
    """What is read item by item equals what is read at once."""
    assert open_value(pack_value(value)) == value
