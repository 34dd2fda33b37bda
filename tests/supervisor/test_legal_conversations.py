"""After any legal conversation all that we write down or answer can be said, and read back."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from agentctl_protocol import messages as m
from agentctl_protocol.channel import supervisor_end
from agentctl_protocol.control import MAX_CONTROL_FRAME, Done, Reply, Statuses
from agentctl_protocol.errors import PeerProtocolError
from agentctl_protocol.framing import FrameBuffer, frame
from agentctl_protocol.records import (
    MAX_BODY,
    ConditionsMet,
    End,
    Record,
    VerdictRecord,
    decode_body,
    pack_record,
)
from agentctl_protocol.report import FiredCondition, Processes, Report, Survivor
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import By
from agentctl_supervisor.gate.gate import Gate
from agentctl_supervisor.report.estimates import estimate
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.report.usage import MAX_TOKENS
from agentctl_supervisor.store.record_room import fitted

COUNTS = st.sampled_from([0, 1, (1 << 53), (1 << 62), MAX_TOKENS - 1, MAX_TOKENS])
FLOATS = st.sampled_from([0.0, -0.0, 1e308, -1e308, 5e-324, float("inf"), float("nan")])
TEXTS = st.sampled_from(["", "a", "\0", "\x1b[31m", "\U0010ffff" * 300, "é" * 5000, "\u202e"])
IDS = st.sampled_from(["c", "d", "\U0010ffff" * 128, "\0"])
SHAPES = st.recursive(
    st.none() | st.booleans() | FLOATS | TEXTS | st.sampled_from([-(1 << 63), (1 << 64) - 1])
    | st.binary(max_size=3)
    | st.builds(msgspec.msgpack.Ext, st.integers(-128, 127), st.binary(max_size=12)),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(TEXTS | st.integers(-3, 3) | FLOATS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
DEEP = st.integers(90, 120).map(lambda depth: b"\x91" * depth + b"\xc0")
RAWS = (SHAPES.map(msgspec.msgpack.encode) | DEEP).map(msgspec.Raw)

EVENTS = st.one_of(
    st.builds(m.Text, TEXTS, TEXTS, IDS),
    st.builds(m.Message, TEXTS, TEXTS, st.sampled_from(["text", "stop", "handoff"]), TEXTS),
    st.builds(m.Progress, FLOATS, FLOATS, TEXTS),
    st.builds(
        m.Usage, TEXTS, IDS | st.just("") | TEXTS, COUNTS, COUNTS,
        st.sampled_from(["reported", "partial", "estimated", "unknown"]),
    ),
    st.builds(m.Checkpoint, RAWS),
    st.builds(m.Artifact, TEXTS, TEXTS),
    st.builds(m.LogLine, TEXTS),
)  # fmt: skip
SAID = st.one_of(
    st.lists(EVENTS, min_size=1, max_size=4),
    st.builds(m.Ask, IDS, st.sampled_from(["model", "tool"]), IDS, RAWS),
    st.builds(
        m.CallFinished, IDS, st.sampled_from(["ok", "error", "cancelled"]), RAWS, TEXTS
    ),
)  # fmt: skip
LAST = st.one_of(
    st.builds(m.ResultMessage, RAWS),
    st.builds(m.ErrorMessage, IDS, TEXTS, TEXTS, st.booleans()),
)


class Supervised:
    """The log of a run, as far as its records go: each is written and read back."""

    def __init__(self) -> None:
        self.fold = Fold("r-aaaaaaaa", RunSpec(target="m:f"))
        self._seq = 1

    def append(self, body: Any, raw: bytes, by: By) -> None:
        assert len(raw) <= MAX_BODY
        pack_record(self._seq, 1, by, raw)
        assert decode_body(by, raw) is not None
        self.fold.apply(Record(self._seq, 10**18 + self._seq, by, body))
        self._seq += len(body.events) if isinstance(body, m.Events) else 1

    def check_report(self) -> None:
        report = self.fold.report()
        for reply in (Done(report), Statuses((report, report.brief()))):
            data = frame(msgspec.msgpack.encode(reply), MAX_CONTROL_FRAME)
            [body] = FrameBuffer(MAX_CONTROL_FRAME).receive(data)
            assert type(msgspec.msgpack.decode(body, type=Reply)) is type(reply)
        told = msgspec.json.decode(msgspec.json.encode(report), type=Report)
        assert told.usage == report.usage
        assert 0 <= self.fold.tokens <= MAX_TOKENS


@settings(deadline=None, max_examples=150)
@given(said=st.lists(SAID, max_size=12), last=st.none() | LAST)
def test_whatever_an_agent_says_can_be_written_down_told_and_read_back(
    said: list[Any], last: Any
) -> None:
    """Numbers at their ends, texts of any characters, values of any shape, in any order."""
    channel, gate, run, number = supervisor_end(), Gate(), Supervised(), 1
    messages: list[m.ChildMessage] = [m.Hello(version=1), m.Ready()]
    for one in said:
        if isinstance(one, list):
            messages.append(m.Events(first=number, events=one))
            number += len(one)
        else:
            messages.append(one)
    messages += [] if last is None else [last]
    try:
        heard = channel.receive(frame(msgspec.msgpack.encode(messages), 1 << 22))
    except PeerProtocolError:
        return
    for message, raw in heard:
        run.append(message, raw, By.CHILD)
        if isinstance(message, m.Ask):
            verdict = gate.judge(message, run.fold.tokens)
            run.append(*fitted(verdict), By.SUPERVISOR)
        for cut in run.fold.cut_calls(over=False):
            run.append(*fitted(estimate(cut)), By.SUPERVISOR)
    run.check_report()
    for cut in run.fold.cut_calls(over=True):
        run.append(*fitted(estimate(cut)), By.SUPERVISOR)
    run.append(*fitted(End()), By.SUPERVISOR)
    run.check_report()


@settings(deadline=None, max_examples=50)
@given(st.lists(st.builds(m.Usage, prompt_tokens=COUNTS, completion_tokens=COUNTS,
                          call=st.sampled_from(["", "a", "b"])), min_size=1))  # fmt: skip
def test_a_sum_of_tokens_that_cannot_be_said_is_called_unknown(usages: list[m.Usage]) -> None:
    """It stays at the greatest number there is, and its quality tells; others are exact."""
    run = Supervised()
    events = m.Events(first=1, events=list(usages))
    run.append(events, msgspec.msgpack.encode(events), By.CHILD)
    [total] = run.fold.report().usage.values()
    last = {u.call: u for u in usages if u.call}
    exact = sum(u.prompt_tokens for u in (*last.values(), *(u for u in usages if not u.call)))
    if exact > MAX_TOKENS:
        assert (total.prompt_tokens, total.quality) == (MAX_TOKENS, "unknown")
    else:
        assert total.prompt_tokens == exact


def test_a_record_of_ours_always_has_room() -> None:
    """Thousands of survivors, of conditions, or arguments of a megabyte with a long refusal."""
    survivors = tuple(Survivor(n, "x" * 200) for n in range(20_000))
    met = tuple(FiredCondition("text_mention(...)", "y" * 200, 1.0) for _ in range(10_000))
    args = msgspec.Raw(msgspec.msgpack.encode("z" * (1 << 20)))
    for body in (
        End(processes=Processes(20_000, 0, 20_000), survivors=survivors),
        ConditionsMet(met),
        VerdictRecord("c", "tool", "n", "refused", "no" * 4096, args),
    ):
        Supervised().append(*fitted(body), By.SUPERVISOR)
