"""Whatever the tree and whatever happens: the judge says what the definition says."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agentctl_protocol.messages import CallFinished, Message, Progress, Text, Usage
from agentctl_protocol.records import VerdictRecord
from agentctl_supervisor.conditions import (
    AllOf,
    AnyOf,
    Condition,
    ConditionError,
    ExternalTermination,
    FunctionCallTermination,
    HandoffTermination,
    Judge,
    Judged,
    MaxMessageTermination,
    SourceMatchTermination,
    StopMessageTermination,
    TextMentionTermination,
    TextMessageTermination,
    TimeoutTermination,
    TokenUsageTermination,
    from_json,
    from_text,
    from_value,
    to_json,
    to_text,
)

# --- trees ----------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", ""])
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
COUNTS = st.integers(1, (1 << 63) - 1)


def leaves(
    texts: st.SearchStrategy[str],
    names: st.SearchStrategy[str],
    counts: st.SearchStrategy[int],
    seconds: st.SearchStrategy[float],
) -> st.SearchStrategy[Any]:
    sources = st.lists(names, min_size=1, max_size=3)
    named = names.filter(bool)
    limit = st.none() | counts
    return st.one_of(
        st.builds(StopMessageTermination),
        st.builds(MaxMessageTermination, counts, st.booleans()),
        st.builds(TextMentionTermination, texts, st.none() | sources),
        st.tuples(limit, limit, limit).filter(any).map(lambda some: TokenUsageTermination(*some)),
        st.builds(HandoffTermination, named),
        st.builds(TimeoutTermination, seconds),
        st.builds(ExternalTermination),
        st.builds(SourceMatchTermination, sources),
        st.builds(TextMessageTermination, st.none() | names),
        st.builds(FunctionCallTermination, named, st.sampled_from([None, "ok", "error"])),
    )


def trees(leaf: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    def above(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        some = st.lists(below, min_size=2, max_size=4)
        return some.map(AnyOf) | some.map(AllOf)

    return st.recursive(leaf, above, max_leaves=12)


WRITTEN = trees(leaves(ANY_TEXT, ANY_TEXT | st.just(""), COUNTS, st.floats(0.001, 999_999_999)))


@given(WRITTEN)
def test_text_and_json_say_the_same_tree(condition: Condition) -> None:
    """From the tree to text or JSON, and back, in any order."""
    text, data = to_text(condition), to_json(condition)
    assert text.isprintable()
    assert from_text(text) == from_json(data) == from_value(text) == condition
    assert to_text(from_json(data)) == text
    assert to_json(from_text(text)) == data


@given(st.text(alphabet="tex(\"'a)|&,=[]1. \\\n\0" + "é", max_size=30) | st.text(max_size=60))
def test_any_text_is_a_condition_or_an_error(text: str) -> None:
    """And an error has a caret in its place."""
    try:
        condition = from_text(text)
    except ConditionError as error:
        assert list(error.excerpt)[1].endswith("^")
        assert max(map(len, error.excerpt)) <= 78
    else:
        assert from_text(to_text(condition)) == condition


# --- judging --------------------------------------------------------------------

START = 50.0
TEXTS = st.sampled_from(["ab", "aba", "b", "abab", "ca"])
JUDGED = trees(leaves(TEXTS, NAMES, st.integers(1, 6), st.integers(1, 9).map(float)))
SPOKEN = st.text("abc", max_size=4)
CALLS = st.sampled_from(["1", "2", "3"])

EVENTS: st.SearchStrategy[Any] = st.one_of(
    st.builds(Text, SPOKEN, NAMES),
    st.builds(Text, SPOKEN, NAMES, CALLS),
    st.builds(Message, SPOKEN, NAMES, st.sampled_from(["text", "stop", "handoff"]), NAMES),
    st.builds(Progress),
    st.builds(Usage, st.just("m"), CALLS | st.just(""), st.integers(0, 3), st.integers(0, 3)),
    st.builds(
        VerdictRecord,
        CALLS,
        st.sampled_from(["tool", "model"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["granted", "granted", "refused"]),
    ),
    st.builds(CallFinished, CALLS, st.sampled_from(["ok", "error", "cancelled"])),
    st.just("signal"),
    st.just("tick"),
)
STEPS = st.lists(st.tuples(st.integers(0, 2).map(float), EVENTS), max_size=25)

_Steps = Sequence[tuple[float, Any]]


@given(JUDGED, STEPS)
def test_the_judge_says_what_the_definition_says(condition: Condition, steps: _Steps) -> None:
    """The step at which a run ends, and all that fired, as read off the whole history."""
    judge = Judge(condition, START)
    now, history = 0.0, []
    for passed, event in steps:
        now += passed
        history.append((now, event))
        expected = fired_in(condition, history)
        if event == "signal":
            fired = judge.tick(START + now) or judge.signal(START + now)
        elif event == "tick":
            fired = judge.tick(START + now)
        else:
            fired = judge.feed(event, START + now)
        assert {one.condition for one in fired} == {str(leaf) for leaf in expected}
        assert judge.fired == fired
        if fired:
            return
        due = [
            leaf.timeout_seconds
            for leaf in leaves_in(condition)
            if isinstance(leaf, TimeoutTermination) and leaf.timeout_seconds > now
        ]
        assert judge.next_deadline() == (START + min(due) if due else None)


def leaves_in(condition: Any) -> list[Any]:
    if isinstance(condition, AnyOf | AllOf):
        return [leaf for part in condition.conditions for leaf in leaves_in(part)]
    return [condition]


def fired_in(condition: Any, history: _Steps) -> list[Any]:
    """The leaves because of which *condition* has happened; none: it has not.

    What is due by the time is judged before the event that came then: the last event
    counts only when the clock alone is not enough.
    """
    now, _ = history[-1]
    before = [*history[:-1], (now, "tick")]
    return _happened(condition, before) or _happened(condition, history)


def _happened(condition: Any, history: _Steps) -> list[Any]:
    if isinstance(condition, AnyOf):
        return [leaf for part in condition.conditions for leaf in _happened(part, history)]
    if isinstance(condition, AllOf):
        parts = [_happened(part, history) for part in condition.conditions]
        return [leaf for part in parts for leaf in part] if all(parts) else []
    return [condition] if is_met(condition, history) else []


def is_met(leaf: Any, history: _Steps) -> bool:
    """Whether *leaf* was met at any time in *history*, in the most simple-minded way."""
    events = [event for _, event in history]
    messages = [event for event in events if isinstance(event, Message)]
    match leaf:
        case StopMessageTermination():
            return any(message.kind == "stop" for message in messages)
        case TextMessageTermination(source=source):
            return any(m.kind == "text" and source in {None, m.source} for m in messages)
        case SourceMatchTermination(sources=sources):
            return any(message.source in sources for message in messages)
        case HandoffTermination(target=target):
            return any(m.kind == "handoff" and m.target == target for m in messages)
        case ExternalTermination():
            return "signal" in events
        case TimeoutTermination(timeout_seconds=seconds):
            return history[-1][0] >= seconds
        case MaxMessageTermination(max_messages=most, include_agent_event=steps):
            calls = tool_steps(events) if steps else []
            return len(messages) + len(calls) >= most
        case FunctionCallTermination(function_name=name, result=result):
            return any(
                called == name and outcome is not None and result in {None, outcome}
                for called, outcome in tool_steps(events)
            )
        case TokenUsageTermination():
            return any(tokens_reached(leaf, events[: at + 1]) for at in range(len(events)))
        case TextMentionTermination(text=text, sources=sources):
            return any(
                text in said
                for source, said in spoken(events)
                if sources is None or source in sources
            )
    raise AssertionError(leaf)


def tool_steps(events: Sequence[Any]) -> list[tuple[str, str | None]]:
    """Starts (without outcome) and ends of tool calls."""
    running: dict[str, str] = {}
    steps: list[tuple[str, str | None]] = []
    for event in events:
        if isinstance(event, VerdictRecord):
            if event.verdict == "granted" and event.kind == "tool":
                running[event.call] = event.name
                steps.append((event.name, None))
        elif isinstance(event, CallFinished) and event.call in running:
            steps.append((running.pop(event.call), event.outcome))
    return steps


def tokens_reached(leaf: TokenUsageTermination, events: Sequence[Any]) -> bool:
    last: dict[Any, Usage] = {}
    for at, event in enumerate(events):
        if isinstance(event, Usage):
            last[event.call or at] = event
    prompt = sum(usage.prompt_tokens for usage in last.values())
    completion = sum(usage.completion_tokens for usage in last.values())
    return any(
        limit is not None and used >= limit
        for limit, used in (
            (leaf.max_total_token, prompt + completion),
            (leaf.max_prompt_token, prompt),
            (leaf.max_completion_token, completion),
        )
    )


def spoken(events: Sequence[Judged | str]) -> list[tuple[str, str]]:
    """Source and text of every message, whole or as far as it has come."""
    said: list[tuple[str, str]] = []
    streams: dict[tuple[str, str], str] = {}
    models: set[str] = set()
    for event in events:
        match event:
            case Text(text=text, source=source, call=call):
                streams[source, call] = streams.get((source, call), "") + text
            case Message(text=text, source=source):
                said.append((source, text))
                ended = [key for key in streams if key[0] == source]
                said += [(source, streams.pop(key)) for key in ended]
            case VerdictRecord(kind="model", verdict="granted", call=call):
                if not models:
                    said += [(source, text) for (source, _), text in streams.items()]
                    streams.clear()
                models.add(call)
            case CallFinished(call=call):
                models.discard(call)
    return [*said, *((source, text) for (source, _), text in streams.items())]
