"""What is counted of a model call that was cut short, from what is kept of it."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from agentctl_protocol.messages import CallFinished, Events, Text, Usage
from agentctl_protocol.records import Estimate, Record, RecordBody, Started, Stop, VerdictRecord
from agentctl_protocol.report import Actor, UsageTotal
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import By, Reason, Result
from agentctl_supervisor.report.call_history import MAX_STREAMED, MAX_STREAMING, CutCall
from agentctl_supervisor.report.estimates import estimate
from agentctl_supervisor.report.reconcile import Fold


def raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


def begins(call: str, request: Any = None, name: str = "m") -> VerdictRecord:
    return VerdictRecord(call=call, kind="model", name=name, verdict="granted", args=raw(request))


def ends(call: str, outcome: Any = "cancelled") -> CallFinished:
    return CallFinished(call=call, outcome=outcome)


def said(*events: Any) -> Events:
    return Events(first=1, events=list(events))


def stop() -> Stop:
    return Stop(Result.STOPPED, Reason.USER, "", Actor("uid", "0"), 1, 1)


def fold_of(bodies: Sequence[RecordBody], *, over: bool = False) -> Fold:
    """A fold of *bodies*; as the writer of the log does it, each cut call is estimated at once."""
    fold = Fold("r-aaaaaaaa", RunSpec(target="m:f"))
    seq = 0

    def apply(body: RecordBody) -> None:
        nonlocal seq
        seq += 10_000
        fold.apply(Record(seq, seq, By.SUPERVISOR, body))

    for body in (Started(), *bodies):
        apply(body)
        if isinstance(body, CallFinished):
            for cut in fold.cut_calls(over=False):
                apply(estimate(cut))
    if over:
        for cut in fold.cut_calls(over=True):
            apply(estimate(cut))
    return fold


def usage(fold: Fold) -> dict[str, UsageTotal]:
    return fold.report().usage


def test_a_request_that_is_kept_no_longer_is_counted_by_its_length() -> None:
    """Its call is open for long, and later ones have long values: it was not asked nothing."""
    big = "x" * (1 << 20)
    later: list[RecordBody] = []
    for number in range(8):
        verdict = VerdictRecord(f"t{number}", "tool", "t", "granted", args=raw(big))
        later += [verdict, CallFinished(call=f"t{number}")]
    fold = fold_of([begins("c", "p" * 4000), *later, ends("c")])
    assert usage(fold) == {"m": UsageTotal(1001, 0, "estimated")}


def test_of_many_streams_at_once_each_is_counted() -> None:
    """The text of the oldest is kept as a sample only, and the rest of it still counts."""
    count = MAX_STREAMING + 4
    starts = [begins(str(n), name=f"m{n:02}") for n in range(count)]
    texts = [said(Text(text="x" * 8000, call=str(n))) for n in range(count)]
    fold = fold_of([*starts, *texts, *texts], over=True)
    assert usage(fold) == {f"m{n:02}": UsageTotal(0, 4000, "estimated") for n in range(count)}


def test_a_text_longer_than_what_is_kept_is_counted_in_full() -> None:
    """By the share of the beginning."""
    pieces = [said(Text(text="x" * (1 << 16))) for _ in range(64)]
    assert MAX_STREAMED < 64 << 16
    fold = fold_of([begins("c"), *pieces, ends("c")])
    assert usage(fold) == {"m": UsageTotal(0, 1 << 20, "estimated")}


def test_of_a_call_of_which_nothing_is_known_that_is_said() -> None:
    """0 tokens are no estimate."""
    fold = fold_of([begins("c"), ends("c")])
    assert usage(fold) == {"m": UsageTotal(0, 0, "unknown")}


@pytest.mark.parametrize(
    ("bodies", "total"),
    [
        pytest.param(
            [begins("c", "p" * 400), ends("c", "ok")],
            UsageTotal(0, 0, "unknown"),
            id="of an ordinary call that says nothing nothing is known",
        ),
        pytest.param(
            [begins("c", "p" * 400), stop(), ends("c", "ok")],
            UsageTotal(100, 0, "estimated"),
            id="ok, but after the stop",
        ),
        pytest.param(
            [begins("c", "p" * 400), said(Usage("m", "c", 7, 9)), stop(), ends("c", "ok")],
            UsageTotal(7, 9, "reported"),
            id="ok after the stop, and told",
        ),
        pytest.param(
            [begins("c", "p" * 400), said(Usage("m", "c", 7, 9)), ends("c", "error")],
            UsageTotal(7, 9, "reported"),
            id="failed, and told",
        ),
        pytest.param(
            [begins("c", "p" * 400), ends("c"), said(Usage("m", "c", 7, 9))],
            UsageTotal(7, 9, "reported"),
            id="told by its id after the estimate",
        ),
        pytest.param(
            [begins("c", "p" * 400), ends("c"), said(Usage("m", "", 7, 9))],
            UsageTotal(7, 9, "reported"),
            id="told without its id after the estimate",
        ),
        pytest.param(
            [begins("c"), said(Usage("m", "", 7, 0)), said(Usage("m", "", 0, 9)), ends("c", "ok")],
            UsageTotal(7, 9, "reported"),
            id="told in parts without its id",
        ),
        pytest.param(
            [begins("c"), begins("d"), said(Usage("m", "", 7, 9)), ends("c", "ok")],
            UsageTotal(7, 9, "unknown"),
            id="of one of two, of which is not said",
        ),
    ],
)
def test_every_token_is_counted_once(bodies: list[RecordBody], total: UsageTotal | None) -> None:
    """Whatever the order in which the agent says it, and however it names the call."""
    fold = fold_of(bodies)
    assert usage(fold) == ({} if total is None else {"m": total})
    assert fold.tokens == (0 if total is None else total.prompt_tokens + total.completion_tokens)


def test_models_that_are_told_without_a_call_stay_apart() -> None:
    """Two models in one call are two rows."""
    told = said(Usage("m", "", 1, 2), Usage("n", "", 10, 20))
    fold = fold_of([begins("c"), told, ends("c", "ok")])
    assert usage(fold) == {
        "m": UsageTotal(1, 2, "reported"),
        "n": UsageTotal(10, 20, "reported"),
    }


class Negative:
    """Counts what cannot be."""

    name = "negative"

    def count(self, text: str) -> int:
        """Less than nothing."""
        return -len(text)


def test_an_estimator_that_counts_what_cannot_be_is_replaced() -> None:
    """By the default, whose name is then in the record."""
    cut = CutCall("c", "m", raw({"n": [1, 2, None], "text": "four"}), "x" * 8, 8)
    assert estimate(cut, Negative()) == Estimate("c", "m", 3, 2, "utf8-bytes/4")
