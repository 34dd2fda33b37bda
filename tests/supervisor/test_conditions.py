"""Each termination condition fires when it says, once, with a sentence; and combined, all do."""

import tracemalloc
from collections.abc import Sequence

import pytest

from agentctl_protocol.messages import CallFinished, Message, Progress, Text, Usage
from agentctl_protocol.records import VerdictRecord
from agentctl_supervisor.conditions import (
    AllOf,
    AnyOf,
    Condition,
    ExternalTermination,
    FiredCondition,
    FunctionalTermination,
    FunctionCallTermination,
    HandoffTermination,
    Judge,
    Judged,
    MaxMessageTermination,
    SourceMatchTermination,
    StopMessageTermination,
    TerminationCondition,
    TextMentionTermination,
    TextMessageTermination,
    TimeoutTermination,
    TokenUsageTermination,
    from_text,
)

START = 100.0
LONG = "x" * (1 << 20)


def grant(call: str, name: str, kind: str = "tool") -> VerdictRecord:
    assert kind in {"tool", "model"}
    return VerdictRecord(call, "tool" if kind == "tool" else "model", name, "granted")


def pieces(text: str, size: int, source: str = "") -> list[Judged]:
    return [Text(text[at : at + size], source) for at in range(0, len(text), size)]


def fires_at(condition: Condition, events: Sequence[Judged]) -> int | None:
    """The index of the event at which *condition* fires."""
    judge = Judge(condition, START)
    return next((at for at, event in enumerate(events) if judge.feed(event, START + at)), None)


def sentences(fired: Sequence[FiredCondition]) -> list[str]:
    return [one.sentence for one in fired]


# --- one by one ---------------------------------------------------------------

TALK: list[Judged] = [
    Text("TERMI", "writer"),
    Message("hello", "writer"),
    Text("NATE", "writer"),  # of another message than the first piece
    Usage("m", "c1", 90, 5),
    grant("t1", "finish"),
    CallFinished("t1", "error"),
    Message("TERMINATE, I say", "writer"),
    Message("over to you", "writer", "handoff", "user"),
    Text("all is well: TERM", "critic"),
    Text("INATE", "critic"),
    Usage("m", "c1", 95, 10),
    grant("t2", "finish"),
    CallFinished("t2"),
    Message("bye", "critic", "stop"),
]


def tokens_told(total: int, prompt: int, completion: int) -> str:
    return (
        f"Token usage limit reached, total token count: {total},"
        f" prompt token count: {prompt}, completion token count: {completion}."
    )


@pytest.mark.parametrize(
    ("text", "at", "sentence"),
    [
        ("stop_message()", 13, "Stop message received"),
        ("max_messages(3)", 7, "Maximum number of messages 3 reached, current message count: 3"),
        (
            "max_messages(3, include_agent_event=true)",
            5,
            "Maximum number of messages 3 reached, current message count: 3",
        ),
        ('text("TERMINATE")', 6, "Text 'TERMINATE' mentioned"),
        ('text("TERMINATE", source="critic")', 9, "Text 'TERMINATE' mentioned"),
        ('text("TERMINATE", source=["nobody", "critic"])', 9, "Text 'TERMINATE' mentioned"),
        ("tokens(total=105)", 10, tokens_told(105, 95, 10)),
        ("tokens(prompt=90)", 3, tokens_told(95, 90, 5)),
        ("tokens(completion=6)", 10, tokens_told(105, 95, 10)),
        ('handoff("user")', 7, "Handoff to user from writer detected."),
        ('source("critic")', 13, "'critic' answered"),
        ("text_message()", 1, "Text message received from 'writer'"),
        ('tool("finish")', 5, "Function 'finish' was executed."),
        ('tool("finish", result="ok")', 12, "Function 'finish' was executed."),
        ('time("5s")', 5, "Timeout of 5 seconds reached"),
    ],
)
def test_a_condition_fires_at_its_event(text: str, at: int, sentence: str) -> None:
    """At that one and at none before, with one sentence, its text form and its time."""
    condition = from_text(text)
    judge = Judge(condition, START)
    told = [judge.feed(event, START + number) for number, event in enumerate(TALK)]
    assert [number for number, fired in enumerate(told) if fired] == [at]
    assert told[at] == judge.fired == (FiredCondition(text, sentence, float(at)),)


@pytest.mark.parametrize(
    "text",
    [
        'text("BYE")',
        'text("TERMINATE", source="user")',
        'handoff("critic")',
        'source("user")',
        'text_message(source="critic")',
        'tool("finish", result="cancelled")',
        'tool("m")',
        "max_messages(5)",
        "tokens(total=106)",
        'time("14s")',
        "external()",
    ],
)
def test_a_condition_that_is_not_met_does_not_fire(text: str) -> None:
    """What looks like it is not it."""
    assert fires_at(from_text(text), TALK) is None


# --- text -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3, 8, 9, 50])
def test_a_text_is_found_however_it_is_cut(size: int) -> None:
    """A message's pieces are one text; the last piece that belongs to it is the moment."""
    said = "it is done: TERMINATE."
    events = pieces(said, size)
    last = (said.index("TERMINATE") + len("TERMINATE") - 1) // size
    assert fires_at(TextMentionTermination("TERMINATE"), events) == last


def test_streams_of_two_agents_are_two_texts() -> None:
    """Pieces that alternate are put together by who says them."""
    events = [Text("TER", "a"), Text("DO", "b"), Text("MINATE", "a"), Text("NE", "b")]
    assert fires_at(TextMentionTermination("TERMINATE"), events) == 2
    assert fires_at(TextMentionTermination("DONE"), events) == 3
    assert fires_at(TextMentionTermination("TERDO"), events) is None


def test_streams_of_two_calls_are_two_texts() -> None:
    """One agent's model calls that run at once are told apart by what they name."""
    events: list[Judged] = [Text("TER", "a", "1"), Text("DO", "a", "2"), Text("MINATE", "a", "1")]
    assert fires_at(TextMentionTermination("TERMINATE"), events) == 2
    assert fires_at(TextMentionTermination("TERDO"), events) is None
    ended = [*events[:2], Message("so much", "a"), events[2]]
    assert fires_at(TextMentionTermination("TERMINATE"), ended) is None


@pytest.mark.parametrize(
    ("between", "found"),
    [
        ([Progress(1, 2)], True),
        ([Message("said", "b")], True),
        ([Message("said", "a")], False),
        ([grant("t", "search")], True),
        ([grant("m", "gpt", "model")], False),
        ([CallFinished("m0")], True),
    ],
)
def test_what_ends_a_message_in_pieces(between: list[Judged], found: bool) -> None:
    """A whole message of the same source does, and a model call; nothing else does."""
    earlier: list[Judged] = [grant("m0", "gpt", "model"), CallFinished("m0")]
    events: list[Judged] = [*earlier, Text("TERMI", "a"), *between, Text("NATE", "a")]
    assert (fires_at(TextMentionTermination("TERMINATE"), events) is not None) is found


def test_a_model_call_beside_another_ends_no_message() -> None:
    """Two agents stream at once: neither's call cuts the other's answer in two."""
    events: list[Judged] = [
        grant("1", "m", "model"),
        Text("TERMI", "a"),
        grant("2", "m", "model"),
        CallFinished("2"),
        Text("NATE", "a"),
    ]
    assert fires_at(TextMentionTermination("TERMINATE"), events) == 4


def test_texts_of_several_conditions_are_found_in_one_stream() -> None:
    """Long and short, one inside the other; each on its own."""
    condition = AllOf([TextMentionTermination(text) for text in ("A", "B", "ABC", "CABBAGE")])
    assert fires_at(condition, pieces("xxA ABC CABBAGE A", 1)) == 14


def test_a_refused_call_and_a_forged_end_count_for_nothing() -> None:
    """Only a call that the gate granted can have been executed."""
    events: list[Judged] = [
        VerdictRecord("1", "tool", "finish", "refused", "no"),
        CallFinished("1"),
        CallFinished("never asked"),
        grant("2", "finish", "model"),
        CallFinished("2"),
    ]
    assert fires_at(FunctionCallTermination("finish"), events) is None
    assert fires_at(MaxMessageTermination(1, include_agent_event=True), events) is None


def test_memory_is_bounded_whatever_an_agent_says() -> None:
    """New names and new calls without end, some a megabyte long: at some point growth ends."""
    wanted = "y" * 1000
    condition = from_text(
        f'text("{wanted}") | tool("finish") & source("x") | tokens(total=9000000000) & text("y")'
        ' | max_messages(1000000, include_agent_event=true) | handoff("x") | text_message("z")'
    )
    judge = Judge(condition, START)

    def say(numbers: range) -> int:
        for number in numbers:
            name = f"{number:0128}"
            source = name + (LONG if number % 20 == 0 else "")
            judge.feed_all(
                [
                    Message("xx", source),
                    Usage("m", name, 1, 1),
                    grant(name, "finish"),
                    grant(f"m{number}", "m", "model"),
                    Text(LONG if number % 400 == 0 else wanted[:900], source),
                ],
                START,
            )
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = say(range(12_000))
        after = say(range(12_000, 24_000))
    finally:
        tracemalloc.stop()
    assert not judge.fired
    assert before < 10 << 20
    assert after - before < 1 << 19


def test_tokens_of_a_call_are_its_running_totals() -> None:
    """The last word on each call counts, and all that belongs to none is added."""
    events: list[Judged] = [
        Usage("m", "a", 10, 1),
        Usage("m", "a", 10, 5),
        Usage("m", "b", 10, 5),
        Usage("m", "", 10, 0),
        Usage("m", "", 10, 0),
    ]
    assert fires_at(TokenUsageTermination(50), events) == 4
    assert fires_at(TokenUsageTermination(51), events) is None


# --- together -------------------------------------------------------------------


def test_or_is_the_first_and_is_the_last() -> None:
    """``|`` fires with one of its conditions, ``&`` once each of them has been met."""
    stop, three = StopMessageTermination(), MaxMessageTermination(3)
    assert fires_at(stop | three, TALK) == 7
    assert fires_at(stop & three, TALK) == 13
    assert fires_at(three & stop, TALK) == 13


def test_and_remembers_what_was_met_before() -> None:
    """Conditions of ``&`` need not be met by the same event; each keeps its own time."""
    judge = Judge(from_text('text("TERMINATE") & tool("finish", result="ok")'), START)
    for at, event in enumerate(TALK):
        judge.feed(event, START + at)
    assert [(one.condition, one.at_s) for one in judge.fired] == [
        ('text("TERMINATE")', 6.0),
        ('tool("finish", result="ok")', 12.0),
    ]


def test_all_that_fired_are_told() -> None:
    """One event may meet several; those of an & that is not complete had no part in it."""
    judge = Judge(
        from_text(
            'text("DONE") | max_messages(1) | stop_message() & text("D") | source("a") & external()'
        ),
        START,
    )
    fired = judge.feed(Message("DONE", "a"), START)
    assert [one.condition for one in fired] == ['text("DONE")', "max_messages(1)"]


def test_a_run_is_ended_once() -> None:
    """What comes afterwards is judged no more: no error, and no second end."""
    judge = Judge(MaxMessageTermination(1) | TimeoutTermination(5) | ExternalTermination(), START)
    assert judge.feed(Message("one"), START + 1)
    first = judge.fired
    assert judge.feed(Message("two"), START + 2) == ()
    assert judge.tick(START + 9) == ()
    assert judge.signal(START + 9) == ()
    assert judge.next_deadline() is None
    assert judge.fired == first


def test_events_behind_the_one_that_counts_are_not_judged() -> None:
    """In one batch, too, a count says how many there were when it was enough."""
    judge = Judge(MaxMessageTermination(2), START)
    (fired,) = judge.feed_all([Message(str(number)) for number in range(5)], START)
    assert fired.sentence.endswith("current message count: 2")


def test_the_same_condition_serves_many_runs() -> None:
    """Conditions hold no state: two runs at once, and a third one later."""
    condition = MaxMessageTermination(2)
    one, other = Judge(condition, START), Judge(condition, START)
    assert not one.feed(Message("a"), START)
    assert not other.feed(Message("a"), START)
    assert one.feed(Message("b"), START)
    assert not other.fired
    assert fires_at(condition, [Message("a"), Message("b")]) == 1


def test_the_same_condition_may_stand_twice_in_a_tree() -> None:
    """One instance in several places is met in all of them, and told once."""
    two = MaxMessageTermination(2)
    for condition in (two & two, two | two, two & (two | StopMessageTermination())):
        judge = Judge(condition, START)
        assert judge.feed(Message("a"), START) == ()
        assert [one.condition for one in judge.feed(Message("b"), START)] == ["max_messages(2)"]


# --- time, and people -----------------------------------------------------------


def test_time_is_counted_from_the_start_and_needs_no_event() -> None:
    """The judge says when it has to be woken; then the condition fires, not before."""
    judge = Judge(TimeoutTermination(60) | TimeoutTermination(90), START)
    assert judge.next_deadline() == START + 60
    assert judge.tick(START + 59.999) == ()
    (fired,) = judge.tick(START + 60)
    assert fired == FiredCondition('time("60s")', "Timeout of 60 seconds reached", 60.0)


def test_the_next_deadline_is_the_next_one_that_is_left() -> None:
    """A time that is over, but not enough by itself, is waited for no more."""
    judge = Judge(from_text('time("2s") & stop_message() | time("5s")'), START)
    assert judge.next_deadline() == START + 2
    assert judge.tick(START + 3) == ()
    assert judge.next_deadline() == START + 5
    assert judge.feed(Message("", kind="stop"), START + 4)
    assert judge.next_deadline() is None
    assert Judge(StopMessageTermination(), START).next_deadline() is None


def test_an_event_after_the_deadline_does_not_hide_it() -> None:
    """The timer may be late: what is due is judged before the event that came first."""
    judge = Judge(TimeoutTermination(2) | StopMessageTermination(), START)
    fired = judge.feed(Message("", kind="stop"), START + 2.5)
    assert sentences(fired) == ["Timeout of 2 seconds reached"]


def test_a_signal_fires_at_once_where_it_is_waited_for() -> None:
    """Also in part: the rest of an & is then enough."""
    judge = Judge(ExternalTermination() & StopMessageTermination(), START)
    assert judge.waits_for_signal
    assert judge.signal(START + 1) == ()
    fired = judge.feed(Message("", kind="stop"), START + 2)
    assert sentences(fired) == ["External termination requested", "Stop message received"]
    deaf = Judge(StopMessageTermination(), START)
    assert not deaf.waits_for_signal
    assert deaf.signal(START) == ()


# --- functions ------------------------------------------------------------------


def test_a_function_sees_what_is_new_since_its_last_call() -> None:
    """One question at a time; what happens meanwhile is in the next one."""
    condition = FunctionalTermination(lambda events: len(events) > 1)
    judge = Judge(condition, START)
    assert judge.questions() == []
    judge.feed(Message("a"), START)
    (first,) = judge.questions()
    assert first.events == (Message("a"),)
    judge.feed_all([Progress(1, 2), Message("b")], START)
    assert judge.questions() == []
    assert judge.answered(first, START, met=first.answer()) == ()
    (second,) = judge.questions()
    assert second.events == (Progress(1, 2), Message("b"))
    assert sentences(judge.answered(second, START + 3, met=second.answer())) == [
        "Functional termination condition met"
    ]
    assert judge.questions() == []


async def _is_true(events: Sequence[Judged]) -> bool:
    return bool(events)


@pytest.mark.parametrize(
    ("function", "met"),
    [
        (lambda _: True, True),
        (lambda _: False, False),
        (lambda _: 1, False),  # as with AutoGen: True, and not what is like it
        (_is_true, True),
    ],
)
def test_only_true_is_an_answer(function: object, met: bool) -> None:
    """Whether the function is a coroutine function or not."""
    judge = Judge(FunctionalTermination(function), START)  # type: ignore[arg-type]
    judge.feed(Message("a"), START)
    (question,) = judge.questions()
    assert question.answer() is met


def test_a_slow_function_misses_the_oldest_and_is_told() -> None:
    """What waits for it is bounded."""
    judge = Judge(FunctionalTermination(_never), START)
    judge.feed(Message("0"), START)
    (first,) = judge.questions()
    judge.feed_all([Message(str(number)) for number in range(10_005)], START)
    judge.answered(first, START, met=False)
    (second,) = judge.questions()
    assert (len(second.events), second.missed) == (10_000, 5)
    assert second.events[0] == Message("5")


def _never(events: Sequence[Judged]) -> bool:
    return False


def test_a_function_that_fails_ends_the_run() -> None:
    """It cannot be judged any more whether the run is to go on; that is said, on one line."""
    condition = FunctionalTermination(_never) & StopMessageTermination()
    judge = Judge(condition, START)
    judge.feed(Message("a"), START)
    (question,) = judge.questions()
    (fired,) = judge.failed(question, "ZeroDivisionError:\n division by zero", START + 1)
    assert fired.condition == "functional(_never)"
    assert fired.sentence == (
        "functional(_never) could not be judged: ZeroDivisionError:\\n division by zero"
    )
    assert judge.fired == (fired,)
    assert judge.questions() == []


class _Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, events: Sequence[Judged]) -> bool:
        return bool(events)


def test_a_function_may_be_any_callable() -> None:
    """One that cannot be hashed, in two places of a tree."""
    condition = FunctionalTermination(_Unhashable())
    judge = Judge(condition & (condition | StopMessageTermination()), START)
    judge.feed(Message("a"), START)
    (question,) = judge.questions()
    assert judge.answered(question, START, met=question.answer())


# --- big trees ------------------------------------------------------------------


def test_a_tree_of_ten_thousand_is_judged() -> None:
    """Made by `|` and by `&`, all of them counted: no recursion, no waiting."""
    leaves = [MaxMessageTermination(number) for number in range(2, 5001)]
    tree: TerminationCondition = leaves[0]
    for leaf in leaves[1:]:
        tree = tree | leaf
    both: TerminationCondition = tree & AllOf(leaves)
    assert isinstance(both, AllOf)
    judge = Judge(both, START)
    for number in range(4999):
        assert judge.feed(Message(str(number)), START) == ()
    assert len(judge.feed(Message("last"), START)) == 4999


def test_what_an_agent_says_stands_on_one_line() -> None:
    """Names of agents in sentences are cut, and hold nothing that a terminal obeys."""
    judge = Judge(TextMessageTermination(), START)
    (fired,) = judge.feed(Message("x", "\x1b[2J\n" + LONG), START)
    assert len(fired.sentence) < 200
    assert fired.sentence.isprintable()


def test_conditions_compare_by_what_they_say() -> None:
    """Trees that mean the same are equal, printed in full, and can be keys."""
    stop, source = StopMessageTermination(), SourceMatchTermination(["a", "b", "a"])
    assert source == SourceMatchTermination(("a", "b"))
    assert (stop | source) | HandoffTermination("x") == stop | (source | HandoffTermination("x"))
    assert (stop | source) != (source | stop)
    assert len({stop | source, AnyOf([stop, source]), stop & source}) == 2
    assert repr(stop | source) == (
        "AnyOf(conditions=(StopMessageTermination(), SourceMatchTermination(sources=('a', 'b'))))"
    )
    with pytest.raises(TypeError):
        stop | 5  # type: ignore[operator]
