"""Conditions as text and as JSON: what is written is what is meant, and what is wrong is shown."""

import functools
import json
import re
import time
from typing import Any

import pytest

from agentctl_protocol.spec import SpecError
from agentctl_supervisor.conditions import (
    AllOf,
    AnyOf,
    Condition,
    ConditionError,
    ExternalTermination,
    FunctionalTermination,
    FunctionCallTermination,
    HandoffTermination,
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
from agentctl_testkit import REPOSITORY

ALL = (
    'text("TERMINATE", source="critic") | max_messages(50) & tokens(total=10000)'
    ' | tool("finish", result="ok") | time("60s") | stop_message() | handoff("user")'
    ' | source("critic") | text_message() | external()'
)
STOP, OUTSIDE, TWO = StopMessageTermination(), ExternalTermination(), MaxMessageTermination(2)


def test_the_line_of_the_manual() -> None:
    """Every condition that has a text, & before |, and back to the very same line."""
    condition = from_text(ALL)
    assert condition == (
        TextMentionTermination("TERMINATE", sources=["critic"])
        | MaxMessageTermination(50) & TokenUsageTermination(max_total_token=10000)
        | FunctionCallTermination("finish", result="ok")
        | TimeoutTermination(60)
        | StopMessageTermination()
        | HandoffTermination("user")
        | SourceMatchTermination(["critic"])
        | TextMessageTermination()
        | ExternalTermination()
    )
    assert to_text(condition) == str(condition) == ALL


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("stop_message() | external() & max_messages(2)", AnyOf([STOP, AllOf([OUTSIDE, TWO])])),
        ("(stop_message() | external()) & max_messages(2)", AllOf([AnyOf([STOP, OUTSIDE]), TWO])),
        ("max_messages(2) & (stop_message() & external())", AllOf([TWO, STOP, OUTSIDE])),
        ("(((stop_message())))", STOP),
        ("\n stop_message\t( )|external( )\r\n", AnyOf([STOP, OUTSIDE])),
        ("text('say \"hi\"')", TextMentionTermination('say "hi"')),
        (r'text("a\nb\u263a\\")', TextMentionTermination("a\nb☺\\")),
        (r"text('it\'s \ud83d\ude00')", TextMentionTermination("it's 😀")),
        ('text(text="a", source=["b", "c"])', TextMentionTermination("a", ["b", "c"])),
        ('text(source="b", text="a")', TextMentionTermination("a", ["b"])),
        ('source("")', SourceMatchTermination([""])),
        ('text_message("b")', TextMessageTermination("b")),
        ("tokens(completion=1, prompt=2)", TokenUsageTermination(None, 2, 1)),
        (
            "max_messages(2, include_agent_event=true)",
            MaxMessageTermination(2, include_agent_event=True),
        ),
        ("max_messages(2, include_agent_event=false)", TWO),
        ('time("1h30m")', TimeoutTermination(5400)),
        ('time("500ms")', TimeoutTermination(0.5)),
        ("time(1.5)", TimeoutTermination(1.5)),
        ('time("7")', TimeoutTermination(7)),
    ],
)
def test_a_text_means_its_condition(text: str, condition: Condition) -> None:
    """However it is spaced, quoted and put in parentheses; its own text means the same."""
    assert from_text(text) == condition
    assert from_text(to_text(condition)) == condition
    assert from_json(to_json(condition)) == condition


# --- what is wrong with a text --------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told", "hint", "at"),
    [
        ("", "expected a condition, found the end", "for example text(", 0),
        ("text", "expected '(' behind text, found the end", "for example text(", 4),
        ("text(DONE)", "'DONE' has no quotes around it", "for example text(", 5),
        ('text("DONE"', "expected ',' or ')', found the end", "for example", 11),
        ('text("DONE', "a string that is not closed", 'end it with "', 5),
        ('text("\t")', "a control character in a string: '\\t'", "write it as", 6),
        ('text("\0")', "a control character in a string: '\\x00'", "write it as", 6),
        ('text("a\\q")', "a \\ in a string that means nothing", "JSON", 7),
        ('text("\\ud800")', "the text is not Unicode: '\\ud800'", "for example", 0),
        ('text("")', "the text is empty", "for example text(", 0),
        ("text(“DONE”)", "'“' means nothing here", "straight quotes", 5),
        ("\x1b[31m", "'\\x1b' means nothing here", "", 0),
        ("external() |", "expected a condition, found the end", "for example", 12),
        ("external() || stop_message()", "| twice", "write | for or", 12),
        ("external() or stop_message()", "expected | or &, found 'or", "write | for or", 11),
        ("external() AND stop_message()", "expected | or &", "write & for and", 11),
        ("not external()", "no condition 'not'", "there is no 'not'", 0),
        ("!external()", "'!' means nothing here", "there is no 'not'", 0),
        ("external() stop_message()", "expected | or &, found 'stop_message()'", "", 11),
        ("(external()", "expected ')', | or &, found the end", "the '(' at 1 is open", 11),
        ("external())", "expected | or &, found ')'", "", 10),
        ("txt('x')", "no condition 'txt'", 'did you mean text("DONE"', 0),
        ("maxmessages(5)", "no condition 'maxmessages'", "did you mean max_messages(50)?", 0),
        ("MaxMessageTermination(5)", "no condition", "did you mean max_messages(50)?", 0),
        ("zzz()", "no condition 'zzz'", "there are text, max_messages, tokens", 0),
        ("functional('f')", "no condition 'functional'", "in Python only", 0),
        ("tokens(9)", "tokens is not told what '9' is", "tokens(total=10000)", 7),
        ("tokens(totl=9)", "tokens has no argument 'totl'", "did you mean total=?", 7),
        ("tokens()", "tokens without a limit", "give total, prompt or completion", 0),
        ("tool()", "tool without its name", "for example tool(", 0),
        ("external(1)", "external takes no argument", "write external()", 9),
        ("tokens(total=1, total=2)", "total is given twice", "leave one out", 16),
        ('text("a", text="b")', "text is given twice", "leave one out", 10),
        ('text("a",)', "expected an argument, found ')'", "for example", 9),
        ("max_messages('5')", "max_messages is a whole number", "max_messages(50)", 13),
        ("max_messages(1.5)", "max_messages is a whole number", "max_messages(50)", 13),
        ("max_messages(0)", "max_messages: less than 1 would end the run", "max_messages(50)", 0),
        ("max_messages(-1)", "max_messages: less than 1 would end the run", "", 0),
        ("max_messages(9223372036854775808)", "max_messages: is too big", "", 0),
        ("max_messages(" + "9" * 5000 + ")", "a number that is too long", "", 13),
        ("tokens(total=0)", "the limit of total tokens: less than 1", "", 0),
        ("time('0s')", "the time is shorter than a millisecond", "", 0),
        ("time('1m1h')", "time: not a duration: '1m1h'", "write 500ms", 5),
        ("time('none')", "time: not a duration: 'none'", "write 500ms", 5),
        ("time('9999999999s')", "time: longer than 30 years", "", 5),
        ("time(9999999999)", "the time is longer than 30 years", "", 0),
        ('tool("x", result="yes")', "the result of a call is not one of ok, error", "", 0),
        ("source([])", "expected a name in quotes, found '])'", "", 8),
        ('source(["a" "b"])', "expected ',' or ']', found", "", 12),
        ('text("a", source=5)', "source is a name in quotes", "for example", 17),
        ('handoff("")', "the target of a handoff is empty", "", 0),
        ('text("' + "x" * 4097 + '")', "the text is longer than 4096 characters", "", 0),
        ("x" * 100_000, "no condition 'xxxxxxxx", "there are", 0),
        ("(" * 100_000, "parentheses inside each other more than 100 times", "", 101),
        ("external()&" * 10_000 + "external()", "more than 10000 conditions", "", 110_000),
        ("x" * ((1 << 20) + 1), "a condition's text is longer than 1048576 characters", "", -1),
    ],
)
def test_a_text_that_is_wrong(text: str, told: str, hint: str, at: int) -> None:
    """One line says what, a hint says what to do, two lines of 78 columns show where; at once."""
    before = time.process_time()
    with pytest.raises(ConditionError) as caught:
        from_text(text)
    assert time.process_time() - before < 1
    error = caught.value
    assert told in str(error)
    assert hint in error.hint
    assert error.at == at
    assert f"(character {at + 1})" in str(error) or at < 0
    assert str(error).isprintable()
    assert len(str(error)) < 160
    if at < 0:
        assert error.excerpt == ()
        return
    [shown, caret] = error.excerpt
    assert max(len(shown), len(caret)) <= 78
    assert shown.isprintable()
    assert caret == " " * (len(caret) - 1) + "^"
    under, meant = shown[len(caret) - 1 : len(caret)], text[at : at + 1]
    assert under == (meant if meant.isprintable() else "\\")


def test_the_caret_stands_below_its_character_in_any_script() -> None:
    """A character that is two columns wide moves it by two."""
    text = 'text("日本語") & foo()'
    with pytest.raises(ConditionError) as caught:
        from_text(text)
    [shown, caret] = caught.value.excerpt
    assert shown == text
    assert caret == " " * (text.index("foo") + 3) + "^"


def test_depth_is_bounded_and_breadth_is_not_slow() -> None:
    """Ten thousand conditions in one text, back and forth; too deep a tree is refused."""
    wide = " | ".join(f"max_messages({number})" for number in range(1, 10_000))
    assert to_text(from_text(wide)) == wide
    deep = "external()"
    for _ in range(60):
        deep = f"({deep}) & stop_message() | external()"
    with pytest.raises(ConditionError, match="inside each other more than 100 times"):
        from_text(deep)
    with pytest.raises(ConditionError, match="inside each other more than 100 times"):
        functools.reduce(_deeper, range(1, 10_001), STOP | OUTSIDE)


def _deeper(condition: AnyOf, number: int) -> AnyOf:
    return (condition & MaxMessageTermination(number)) | STOP


# --- what is wrong with a value -------------------------------------------------


@pytest.mark.parametrize(
    ("made_of", "arguments", "told"),
    [
        (MaxMessageTermination, [0], "less than 1 would end the run before it starts"),
        (MaxMessageTermination, ["5"], "max_messages is no whole number: '5'"),
        (MaxMessageTermination, [True], "max_messages is no whole number: 'True'"),
        (MaxMessageTermination, [1.5], "max_messages is no whole number: '1.5'"),
        (MaxMessageTermination, [5, "yes"], "include_agent_event is not one of"),
        (TextMentionTermination, [""], "the text is empty"),
        (TextMentionTermination, [b"x"], "the text is no text: a bytes"),
        (TextMentionTermination, ["x", "critic"], "sources is no list of names"),
        (TextMentionTermination, ["x", []], "sources is empty"),
        (TextMentionTermination, ["x", [5]], "a name in sources is no text: '5'"),
        (SourceMatchTermination, [["x" * 257]], "longer than 256 characters"),
        (SourceMatchTermination, [list(map(str, range(101)))], "more than 100 names"),
        (TokenUsageTermination, [], "tokens without a limit"),
        (TokenUsageTermination, [-5], "less than 1"),
        (TimeoutTermination, [0], "shorter than a millisecond"),
        (TimeoutTermination, [float("nan")], "or no number"),
        (TimeoutTermination, [float("inf")], "longer than 30 years"),
        (TimeoutTermination, [10**400], "longer than 30 years"),
        (TimeoutTermination, ["60s"], "no number of seconds"),
        (HandoffTermination, [""], "the target of a handoff is empty"),
        (FunctionCallTermination, ["x", "fine"], "is not one of ok, error, cancelled"),
        (FunctionalTermination, ["f"], "cannot be called"),
        (AnyOf, [[STOP]], "any of fewer than two conditions"),
        (AllOf, [[]], "all of fewer than two conditions"),
        (AnyOf, [[STOP, "external()"]], "a str is no condition"),
    ],
)
def test_a_value_that_is_impossible(made_of: Any, arguments: list[Any], told: str) -> None:
    """It is refused where the condition is made, in one line; who knows only ValueError sees it."""
    assert issubclass(ConditionError, SpecError)
    assert issubclass(ConditionError, ValueError)
    with pytest.raises(ConditionError) as caught:
        made_of(*arguments)
    assert told in str(caught.value)
    assert str(caught.value).isprintable()


# --- JSON -----------------------------------------------------------------------


def test_the_json_is_the_classes() -> None:
    """Keys are the parameters, ``type`` is the name in the text form, defaults are left out."""
    condition = from_text('text("X", source="a") & (time("2s") | tool("f", result="ok"))')
    data = json.loads(to_json(condition))
    assert data == {
        "type": "all",
        "conditions": [
            {"type": "text", "text": "X", "sources": ["a"]},
            {
                "type": "any",
                "conditions": [
                    {"type": "time", "timeout_seconds": 2.0},
                    {"type": "tool", "function_name": "f", "result": "ok"},
                ],
            },
        ],
    }
    assert from_json(json.dumps(data)) == from_value(data) == condition
    assert from_value(json.dumps(data)) == from_value(str(condition)) == condition


@pytest.mark.parametrize(
    ("data", "told", "hint"),
    [
        ("", "not a condition: Input data was truncated", "for example"),
        ("[]", "not a condition: Expected `object`, got `array`", "for example"),
        ("{}", "missing required field `type`", "for example"),
        ('{"type": "txt"}', "no condition 'txt'", "did you mean text?"),
        ('{"type": "zzz"}', "no condition 'zzz'", "there are text,"),
        (
            '{"type": "any", "conditions": [{"type": "external"}, {"type": "txt"}]}',
            "no condition 'txt'",
            "did you mean text?",
        ),
        ('{"type": "text"}', "missing required field `text`", "for example"),
        ('{"type": "text", "text": "x", "source": "y"}', "unknown field `source`", "for example"),
        ('{"type": "text", "text": 5}', "Expected `str`, got `int` - at `$.text`", "for example"),
        ('{"type": "text", "text": ""}', "the text is empty", "for example"),
        ('{"type": "max_messages", "max_messages": 0}', "less than 1", "for example"),
        ('{"type": "max_messages", "max_messages": 1e400}', "not a condition", "for example"),
        ('{"type": "time", "timeout_seconds": -1}', "shorter than a millisecond", "for example"),
        ('{"type": "any", "conditions": []}', "fewer than two", "for example"),
        ('{"type": "functional", "func": "f"}', "a function cannot be written", "in Python only"),
        ('{"type":"any","conditions":[' * 100_000, "nested too deeply", "for example"),
        ('{"type":"text","text":"' + "x" * 5_000_000, "longer than 4194304 bytes", ""),
    ],
)
def test_a_json_that_is_wrong(data: str, told: str, hint: str) -> None:
    """One line that says what and where, from text and from bytes."""
    for form in (data, data.encode()):
        with pytest.raises(ConditionError) as caught:
            from_json(form)
        assert told in str(caught.value)
        assert hint in caught.value.hint
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 240


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (None, "a NoneType is no condition"),
        (5, "a int is no condition"),
        (["external()"], "a list is no condition"),
        ({"type": "text", "text": 5}, "Expected `str`, got `int`"),
        ({"type": "nothing"}, "no condition 'nothing'"),
        ("\ud800", "means nothing here"),
        ('{"type": "text", "text": "\ud800"}', "surrogates not allowed"),
    ],
)
def test_a_value_that_says_no_condition(value: object, told: str) -> None:
    """A spec may hold anything at all."""
    with pytest.raises(ConditionError) as caught:
        from_value(value)
    assert told in str(caught.value)


def test_a_function_has_no_json() -> None:
    """Alone or deep in a tree; its text is for people only."""
    condition = STOP | TWO & FunctionalTermination(len)  # type: ignore[arg-type]
    with pytest.raises(ConditionError, match="a function cannot be written as JSON"):
        to_json(condition)
    assert str(condition) == "stop_message() | max_messages(2) & functional(len)"


def test_the_page_about_conditions_shows_conditions() -> None:
    """Every line and every cell of ``docs/conditions.md`` that is one means one; the JSON, too."""
    page = (REPOSITORY / "docs" / "conditions.md").read_text()
    lines = re.findall(r"^    ([a-z(].*)$", page, re.MULTILINE)
    rows = re.findall(r"^\| (`.*?`) \| `(\w+)\(.*?\)` \|", page, re.MULTILINE)
    assert len(lines) == 3
    assert len(rows) == 10
    for line in lines:
        assert to_text(from_text(line))
    for cells, name in rows:
        for cell in re.findall(r"`(.*?)`", cells):
            assert type(from_text(cell)).__name__ == name
    [data] = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    [text] = re.findall(r"print\(condition\)  # (.*)", page)
    assert from_json(data) == from_text(text)
