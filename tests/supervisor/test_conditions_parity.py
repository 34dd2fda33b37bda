"""The same events, fed to AutoGen's own classes and to ours: the same end; and where not, why.

AutoGen is given one message at a time, which is how ours judge; each step's events are one
of AutoGen's messages, and what we see of the same thing.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import pytest
from autogen_agentchat import conditions as theirs
from autogen_agentchat import messages as m
from autogen_agentchat.base import TerminatedException
from autogen_agentchat.conditions import _terminations
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult, RequestUsage
from hypothesis import given
from hypothesis import strategies as st

from agentctl_protocol.messages import CallFinished, Message, Usage
from agentctl_protocol.records import VerdictRecord
from agentctl_protocol.values import pack_value
from agentctl_supervisor import conditions as ours
from agentctl_supervisor.conditions import ConditionError, FiredCondition, Judge, Judged

#: Nobody, as far as conditions on sources go: our calls and usages have no source.
QUIET: Final = "quiet"


@dataclass
class Clock:
    """What both sides take for the time."""

    now: float = 1000.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(_terminations, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


# --- one step on both sides -------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """Something that happens: a message of theirs, events of ours; or time, or a signal."""

    their: Any = None
    our: tuple[Judged, ...] = ()
    passed_s: float = 0.0
    signal: bool = False


def said(text: str, source: str) -> Step:
    return Step(m.TextMessage(content=text, source=source), (Message(text, source),))


def stopped(text: str, source: str) -> Step:
    return Step(m.StopMessage(content=text, source=source), (Message(text, source, "stop"),))


def handed(target: str, source: str) -> Step:
    their = m.HandoffMessage(content="yours", target=target, source=source)
    return Step(their, (Message("yours", source, "handoff", target),))


def used(prompt: int, completion: int) -> Step:
    usage = RequestUsage(prompt_tokens=prompt, completion_tokens=completion)
    their = m.ThoughtEvent(content="", source=QUIET, models_usage=usage)
    return Step(their, (Usage("m", "", prompt, completion),))


def asked(call: str, tool: str) -> Step:
    their = m.ToolCallRequestEvent(
        content=[FunctionCall(id=call, name=tool, arguments="")], source=QUIET
    )
    return Step(their, (VerdictRecord(call, "tool", tool, "granted"),))


def executed(call: str, tool: str, *, error: bool) -> Step:
    result = FunctionExecutionResult(call_id=call, name=tool, content="", is_error=error)
    their = m.ToolCallExecutionEvent(content=[result], source=QUIET)
    return Step(their, (CallFinished(call, "error" if error else "ok"),))


def passed(seconds: float) -> Step:
    return Step(passed_s=seconds)


SIGNAL: Final = Step(signal=True)


# --- one condition on both sides --------------------------------------------------


def their_own(condition: Any) -> Any:
    """A fresh one of theirs that says the same."""
    if isinstance(condition, ours.AnyOf | ours.AllOf):
        first, *rest = map(their_own, condition.conditions)
        for one in rest:
            first = first | one if isinstance(condition, ours.AnyOf) else first & one
        return first
    fields = {name: getattr(condition, name) for name in condition.__struct_fields__}
    fields.pop("result", None)
    if "sources" in fields and fields["sources"] is not None:
        fields["sources"] = list(fields["sources"])
    return getattr(theirs, type(condition).__name__)(**fields)


def signalled(condition: Any) -> Iterator[Any]:
    """Their external conditions in a tree of theirs."""
    if isinstance(condition, theirs.ExternalTermination):
        yield condition
    for below in getattr(condition, "_conditions", ()):
        yield from signalled(below)


def end_of_theirs(condition: Any, steps: Sequence[Step], clock: Clock) -> tuple[int, str] | None:
    """The step at which theirs ends, and what it says."""

    async def run() -> tuple[int, str] | None:
        their = their_own(condition)
        for at, step in enumerate(steps):
            clock.now += step.passed_s
            if step.signal:
                for one in signalled(their):
                    one.set()
            stop = await their([step.their] if step.their else [])
            if stop is not None:
                return at, stop.content
        return None

    return asyncio.run(run())


def end_of_ours(
    condition: Any, steps: Sequence[Step], clock: Clock
) -> tuple[int, tuple[FiredCondition, ...]] | None:
    """The step at which ours ends, and all that fired."""
    judge = Judge(condition, clock.now)
    for at, step in enumerate(steps):
        clock.now += step.passed_s
        judge.tick(clock.now)
        if step.signal:
            judge.signal(clock.now)
        judge.feed_all(step.our, clock.now)
        if judge.fired:
            return at, judge.fired
    return None


# --- the same ---------------------------------------------------------------------

STORY: Final = [
    said("good morning", "writer"),
    asked("1", "search"),
    executed("1", "search", error=False),
    used(100, 10),
    said("to be continued", "critic"),
    passed(5),
    handed("user", "writer"),
    asked("2", "finish"),
    executed("2", "finish", error=True),
    SIGNAL,
    used(20, 30),
    passed(20),
    said("TERMINATE", "writer"),
    said("please TERMINATE.", "critic"),
    stopped("enough", "critic"),
    handed("critic", "user"),
]

ELEVEN: Final = [
    ours.StopMessageTermination(),
    ours.MaxMessageTermination(1),
    ours.MaxMessageTermination(3),
    ours.MaxMessageTermination(5),
    ours.MaxMessageTermination(99),
    ours.TextMentionTermination("TERMINATE"),
    ours.TextMentionTermination("TERMINATE", sources=["critic"]),
    ours.TextMentionTermination("TERMINATE", sources=["nobody"]),
    ours.TokenUsageTermination(max_total_token=110),
    ours.TokenUsageTermination(max_total_token=111),
    ours.TokenUsageTermination(max_prompt_token=120),
    ours.TokenUsageTermination(max_completion_token=41, max_prompt_token=10**6),
    ours.HandoffTermination("critic"),
    ours.HandoffTermination("user"),
    ours.TimeoutTermination(5),
    ours.TimeoutTermination(25),
    ours.TimeoutTermination(26),
    ours.ExternalTermination(),
    ours.SourceMatchTermination(["critic"]),
    ours.SourceMatchTermination(["nobody", "user"]),
    ours.TextMessageTermination(),
    ours.TextMessageTermination("critic"),
    ours.TextMessageTermination("nobody"),
    ours.FunctionCallTermination("finish"),
    ours.FunctionCallTermination("nothing"),
]


@pytest.mark.parametrize("condition", ELEVEN, ids=str)
def test_each_class_ends_where_theirs_does(condition: Any, clock: Clock) -> None:
    """At the same step and with the same words; or neither does."""
    their, our = end_of_theirs(condition, STORY, clock), end_of_ours(condition, STORY, clock)
    if isinstance(condition, ours.TimeoutTermination) and their is not None:
        their = (their[0], their[1].replace(".0 seconds", " seconds"))
    assert their == (None if our is None else (our[0], our[1][0].sentence))


def test_agent_events_are_counted_alike(clock: Clock) -> None:
    """With ``include_agent_event`` the start and the end of a tool's call count, too."""
    steps = [step for step in STORY if not isinstance(step.their, m.ThoughtEvent)]
    for most in range(1, sum(step.their is not None for step in steps) + 1):
        condition = ours.MaxMessageTermination(most, include_agent_event=True)
        their, our = end_of_theirs(condition, steps, clock), end_of_ours(condition, steps, clock)
        assert our is not None
        assert their == (our[0], our[1][0].sentence)


def is_stop(messages: Sequence[Any]) -> bool:
    last = messages[-1]
    return isinstance(last, m.StopMessage) or getattr(last, "kind", "") == "stop"


async def is_stop_later(messages: Sequence[Any]) -> bool:
    await asyncio.sleep(0)
    return is_stop(messages)


def is_truthy(messages: Sequence[Any]) -> Any:
    return len(messages)


@pytest.mark.parametrize("function", [is_stop, is_stop_later, is_truthy])
def test_functions_are_asked_alike(function: Any) -> None:
    """With what is new; True counts, and 1 does not; a coroutine function is awaited."""
    steps = [said("a", "b"), stopped("c", "d")]
    judge = Judge(ours.FunctionalTermination(function), 0.0)
    our = []
    for step in steps:
        judge.feed_all(step.our, 0.0)
        (question,) = judge.questions()
        fired = judge.answered(question, 0.0, met=question.answer())
        our.append(fired[0].sentence if fired else None)

    async def run() -> list[str | None]:
        their = theirs.FunctionalTermination(function)
        stops = [await their([step.their]) for step in steps]
        return [None if stop is None else stop.content for stop in stops]

    assert our == asyncio.run(run())


SOURCES: Final = st.sampled_from(["a", "b"])
LEAVES: Final[st.SearchStrategy[Any]] = st.one_of(
    st.builds(ours.StopMessageTermination),
    st.builds(ours.MaxMessageTermination, st.integers(1, 6)),
    st.builds(
        ours.TextMentionTermination,
        st.sampled_from(["DONE", "ON"]),
        st.none() | st.lists(SOURCES, min_size=1, max_size=2),
    ),
    st.builds(ours.TokenUsageTermination, st.integers(1, 30)),
    st.builds(ours.TokenUsageTermination, st.none(), st.integers(1, 9), st.integers(1, 9)),
    st.builds(ours.HandoffTermination, SOURCES),
    st.builds(ours.TimeoutTermination, st.integers(1, 9)),
    st.builds(ours.ExternalTermination),
    st.builds(ours.SourceMatchTermination, st.lists(SOURCES, min_size=1, max_size=2)),
    st.builds(ours.TextMessageTermination, st.none() | SOURCES),
    st.builds(ours.FunctionCallTermination, st.sampled_from(["f", "g"])),
)


def _above(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    some = st.lists(below, min_size=2, max_size=3)
    return some.map(ours.AnyOf) | some.map(ours.AllOf)


STEPS: Final = st.lists(
    st.one_of(
        st.builds(said, st.sampled_from(["hello", "DONE", "ON"]), SOURCES),
        st.builds(stopped, st.just("bye"), SOURCES),
        st.builds(handed, SOURCES, SOURCES),
        st.builds(used, st.integers(0, 5), st.integers(0, 5)),
        st.builds(passed, st.integers(0, 4)),
        st.just(SIGNAL),
        st.sampled_from(["f", "g"]).flatmap(
            lambda tool: st.just(("call", tool))  # its start and its end are two steps
        ),
    ),
    max_size=15,
).map(lambda some: [step for one in some for step in _steps(one)])


def _steps(one: Any) -> list[Step]:
    if isinstance(one, Step):
        return [one]
    _, tool = one
    return [asked(tool, tool), executed(tool, tool, error=False)]


@given(st.recursive(LEAVES, _above, max_leaves=8), STEPS)
def test_any_tree_ends_where_theirs_does(condition: Any, steps: Sequence[Step]) -> None:
    """At the same step; what they tell we tell, too, and where no | is below an & no more."""
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_terminations, "time", SimpleNamespace(monotonic=lambda: clock.now))
        their = end_of_theirs(condition, steps, clock)
        our = end_of_ours(condition, steps, clock)
    assert (their and their[0]) == (our and our[0])
    if their is None or our is None:
        return
    left = their[1].replace(".0 seconds", " seconds")
    for sentence in sorted({one.sentence for one in our[1]}, key=len, reverse=True):
        assert sentence in left or _has_or_below_and(condition)
        left = left.replace(sentence, "")
    assert set(left) <= set(", ")


def _has_or_below_and(condition: Any, *, below: bool = False) -> bool:
    if isinstance(condition, ours.AnyOf) and below:
        return True
    below = below or isinstance(condition, ours.AllOf)
    return any(_has_or_below_and(one, below=below) for one in getattr(condition, "conditions", ()))


# --- not the same, on purpose -------------------------------------------------------


def call_theirs(their: Any, *messages: Any) -> str | None:
    """What one of theirs says to *messages*."""

    async def run() -> str | None:
        stop = await their(list(messages))
        return None if stop is None else str(stop.content)

    return asyncio.run(run())


TASK: Final = "Count to three, then say TERMINATE."


def test_the_task_is_not_judged_unless_it_is_fed() -> None:
    """Their team shows the task to its condition, and is over before it began."""
    task = m.TextMessage(content=TASK, source="user")
    assert call_theirs(theirs.TextMentionTermination("TERMINATE"), task) is not None

    condition = ours.TextMentionTermination("TERMINATE")
    assert not Judge(condition, 0.0).fired
    assert Judge(condition, 0.0).feed(Message(TASK, "user"), 0.0)


def test_time_runs_from_the_runs_start_and_by_itself(clock: Clock) -> None:
    """Theirs counts from when it was made, and only a message shows it that it is over."""
    their, our = theirs.TimeoutTermination(5), ours.TimeoutTermination(5)
    clock.now += 60
    judge = Judge(our, clock.now)
    assert call_theirs(their) is not None
    assert judge.tick(clock.now) == ()
    assert judge.next_deadline() == clock.now + 5
    assert judge.tick(clock.now + 5)


def test_ours_can_be_used_again() -> None:
    """Theirs has to be reset, or raises what no `except Exception` catches."""
    their, our = theirs.StopMessageTermination(), ours.StopMessageTermination()
    stop = stopped("x", "a")
    assert call_theirs(their, stop.their)
    with pytest.raises(TerminatedException):
        call_theirs(their, stop.their)
    assert not issubclass(TerminatedException, Exception)
    for _ in range(2):
        assert Judge(our, 0.0).feed_all(stop.our, 0.0)


def test_ours_may_stand_twice_in_a_tree() -> None:
    """Theirs is asked a second time after it has fired, and raises at once."""
    their, our = theirs.StopMessageTermination(), ours.StopMessageTermination()
    stop = stopped("x", "a")
    for both in (their & their, their | their):
        asyncio.run(their.reset())
        with pytest.raises(TerminatedException):
            call_theirs(both, stop.their)
    for condition in (our & our, our | our):
        assert len(Judge(condition, 0.0).feed_all(stop.our, 0.0)) == 1


def test_all_that_fired_are_told() -> None:
    """Theirs no longer asks an | in an & of which one has fired."""
    steps = [said("DONE", "a"), handed("b", "a"), stopped("x", "a")]
    condition = (
        ours.TextMentionTermination("DONE") | ours.HandoffTermination("b")
    ) & ours.StopMessageTermination()
    their = end_of_theirs(condition, steps, Clock())
    our = end_of_ours(condition, steps, Clock())
    assert their == (2, "Text 'DONE' mentioned, Stop message received")
    assert our is not None
    assert [one.sentence for one in our[1]] == [
        "Text 'DONE' mentioned",
        "Handoff to b from a detected.",
        "Stop message received",
    ]


def test_what_is_met_before_it_begins_is_refused() -> None:
    """Theirs is born terminated, or met by the first message whatever it is."""
    hello = said("hello", "a").their
    with pytest.raises(TerminatedException):
        call_theirs(theirs.MaxMessageTermination(0), hello)
    with pytest.raises(TerminatedException):
        call_theirs(theirs.TokenUsageTermination(max_total_token=0), hello)
    assert call_theirs(theirs.TextMentionTermination(""), hello)
    assert call_theirs(theirs.TimeoutTermination(0), hello)
    impossible: list[tuple[Any, Any]] = [
        (ours.MaxMessageTermination, 0),
        (ours.TokenUsageTermination, 0),
        (ours.TextMentionTermination, ""),
        (ours.TimeoutTermination, 0),
    ]
    for kind, argument in impossible:
        with pytest.raises(ConditionError):
            kind(argument)


def test_what_a_tool_gives_back_is_not_said_by_an_agent() -> None:
    """A page that contains the word ends theirs, and not ours."""
    result = FunctionExecutionResult(call_id="1", name="f", content="TERMINATE", is_error=False)
    page = m.ToolCallExecutionEvent(content=[result], source="a")
    assert call_theirs(theirs.TextMentionTermination("TERMINATE"), page)
    judge = Judge(ours.TextMentionTermination("TERMINATE"), 0.0)
    judge.feed(VerdictRecord("1", "tool", "f", "granted"), 0.0)
    assert judge.feed(CallFinished("1", result=pack_value("TERMINATE")), 0.0) == ()


def test_an_agents_call_of_a_tool_is_no_answer() -> None:
    """Theirs takes any event of a source for its answer; ours waits for a message."""
    call = m.ToolCallRequestEvent(
        content=[FunctionCall(id="1", name="f", arguments="")], source="critic"
    )
    assert call_theirs(theirs.SourceMatchTermination(["critic"]), call)
    judge = Judge(ours.SourceMatchTermination(["critic"]), 0.0)
    assert judge.feed(VerdictRecord("1", "tool", "f", "granted"), 0.0) == ()
    assert judge.feed(Message("here", "critic"), 0.0)


def test_the_sources_of_a_text_survive_their_file() -> None:
    """Their component forgets them, and then fires for anybody."""
    loaded = theirs.TextMentionTermination.load_component(
        theirs.TextMentionTermination("X", sources=["critic"]).dump_component()
    )
    other = said("X", "writer")
    assert call_theirs(loaded, other.their)
    condition = ours.TextMentionTermination("X", sources=["critic"])
    same = ours.from_json(ours.to_json(condition))
    assert Judge(same, 0.0).feed_all(other.our, 0.0) == ()


def test_a_call_can_be_waited_for_by_its_outcome() -> None:
    """Theirs fires for a call that failed, too; ours does unless it is told which."""
    steps = [asked("1", "f"), executed("1", "f", error=True)]
    any_end = ours.FunctionCallTermination("f")
    assert end_of_theirs(any_end, steps, Clock()) == (1, "Function 'f' was executed.")
    assert end_of_ours(any_end, steps, Clock()) is not None
    assert end_of_ours(ours.FunctionCallTermination("f", result="ok"), steps, Clock()) is None
