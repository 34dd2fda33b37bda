"""The gate: who may call what, who decides, and that nothing passes after a stop."""

from typing import Literal

import msgspec
import pytest

from agentctl_protocol.messages import Ask
from agentctl_protocol.records import VerdictRecord, Waiting
from agentctl_protocol.report import Actor
from agentctl_protocol.spec import SpecError, check_pattern
from agentctl_protocol.values import pack_value
from agentctl_protocol.vocabulary import Reason
from agentctl_supervisor.gate import call_arguments as arguments_module
from agentctl_supervisor.gate import gate as gates
from agentctl_supervisor.gate.call_arguments import arguments_of
from agentctl_supervisor.gate.call_pattern import CallPattern
from agentctl_supervisor.gate.call_rules import CallRules, Refusal
from agentctl_supervisor.gate.gate import Gate

ANN = Actor("uid", "1000 (ann)")


def ask(
    call: str,
    name: str = "shell",
    args: object = ("a", 1),
    kind: Literal["model", "tool"] = "tool",
) -> Ask:
    return Ask(call=call, kind=kind, name=name, args=pack_value(args))


def verdict(gate: Gate, asked: Ask, tokens: int = 0) -> VerdictRecord:
    judged = gate.judge(asked, tokens)
    assert isinstance(judged, VerdictRecord)
    return judged


def test_an_open_gate_grants_and_the_record_tells_the_whole_call() -> None:
    """The verdict is the start of the call: it holds what was asked for."""
    given = verdict(Gate(), ask("c1", args={"a": 1}))
    assert (given.call, given.name, given.verdict) == ("c1", "shell", "granted")
    assert bytes(given.args) == b"\x81\xa1a\x01"


def test_a_closed_gate_refuses_for_good_and_keeps_its_first_reason() -> None:
    """Nothing opens the gate again."""
    gate = Gate()
    gate.close("the run is being stopped")
    gate.close("something else")
    assert {verdict(gate, ask(f"c{n}")).why for n in range(3)} == {"the run is being stopped"}
    assert gate.closed


def test_a_call_id_is_granted_once() -> None:
    """A reused id would make two calls look like one in the report."""
    gate = Gate()
    assert verdict(gate, ask("c1")).verdict == "granted"
    assert verdict(gate, ask("c1")).why == "this call id was used before"


def test_the_number_of_remembered_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent cannot fill the supervisor's memory with call ids."""
    monkeypatch.setattr(gates, "MAX_CALLS", 2)
    gate = Gate()
    verdicts = [verdict(gate, ask(f"c{n}")).verdict for n in range(3)]
    assert verdicts == ["granted", "granted", "refused"]


# --- budgets --------------------------------------------------------------


def test_the_call_past_the_budget_is_refused_and_ends_the_run() -> None:
    """Model and tool calls count together, refused ones not at all."""
    gate = Gate(CallRules(calls=2, deny=["rm"]))
    assert verdict(gate, ask("c1", kind="model")).verdict == "granted"
    assert verdict(gate, ask("c2", "rm")).verdict == "refused"
    assert verdict(gate, ask("c3")).verdict == "granted"
    assert repr(gate.exceeded) == "None"
    refused = verdict(gate, ask("c4")).why
    assert refused == "the budget of 2 calls is used up"
    assert gate.exceeded == Refusal(refused, Reason.CALLS)


def test_a_tool_past_its_own_budget_is_refused_and_the_run_goes_on() -> None:
    """Other calls are still granted."""
    gate = Gate(CallRules(each={"shell": 1, "web_*": 0}))
    assert verdict(gate, ask("c1")).verdict == "granted"
    assert verdict(gate, ask("c2")).why == "the budget of 1 call of 'shell' is used up"
    assert verdict(gate, ask("c3", "web_get")).verdict == "refused"
    assert verdict(gate, ask("c4", "other")).verdict == "granted"
    assert gate.exceeded is None


def test_tokens_past_the_budget_end_the_run_by_the_next_ask_at_the_latest() -> None:
    """What was used is not known before a call; so it is looked at after each report, too."""
    gate = Gate(CallRules(tokens=100))
    assert verdict(gate, ask("c1"), tokens=99).verdict == "granted"
    assert gate.used(99) is None
    exceeded = gate.used(100)
    assert exceeded is not None
    assert exceeded.limit is Reason.TOKENS
    assert verdict(gate, ask("c2"), tokens=100).why == ("the budget of 100 tokens is used up (100)")


# --- rules by name ----------------------------------------------------------


def test_denial_goes_before_permission_and_both_are_about_every_kind() -> None:
    """A call of a model may be called as a tool is: what it is called is the agent's choice."""
    gate = Gate(CallRules(allow=["read_*", "shell:ls *", "model:gpt-*"], deny=["read_secret"]))
    assert verdict(gate, ask("c1", "read_file")).verdict == "granted"
    assert verdict(gate, ask("c2", "read_secret")).why == "denied by the rule 'read_secret'"
    assert verdict(gate, ask("c3", "write_file")).why == "no rule allows 'write_file'"
    assert verdict(gate, ask("c4", "shell", "ls -l")).verdict == "granted"
    assert verdict(gate, ask("c5", "shell", "rm -r /")).verdict == "refused"
    assert verdict(gate, ask("c6", "read_secret", kind="model")).verdict == "refused"
    assert verdict(gate, ask("c7", "gpt-4o", kind="model")).verdict == "granted"
    assert verdict(gate, ask("c8", "gpt-4o")).verdict == "refused"
    assert verdict(gate, ask("c9", "big", kind="model")).why == (
        "no rule allows the model 'big' (model:* allows all)"
    )


@pytest.mark.parametrize(("kind", "other"), [("tool", "model"), ("model", "tool")])
def test_a_rule_may_be_about_one_kind(
    kind: Literal["model", "tool"], other: Literal["model", "tool"]
) -> None:
    """``tool:`` and ``model:`` say so; a permission then leaves the other kind alone."""
    for rules in (CallRules(deny=[f"{kind}:shell:rm *"]), CallRules(allow=[f"{kind}:look"])):
        gate = Gate(rules)
        assert verdict(gate, ask("c1", args="rm x", kind=kind)).verdict == "refused"
        assert verdict(gate, ask("c2", args="rm x", kind=other)).verdict == "granted"
    waits = Gate(CallRules(approve=[f"{kind}:*"]))
    assert isinstance(waits.judge(ask("c1", kind=kind)), Waiting)
    assert verdict(waits, ask("c2", kind=other)).verdict == "granted"


@pytest.mark.parametrize(
    "name",
    [
        *("Shell", "SHELL", "shell ", " shell", "shell\t", "shel1", "sheII"),
        *("shell\u200b", "\u2060shell", "shell\ufe0f", "shell\u3164", "shell\U000e0041"),
        *("\u0455hell", "sh\u0435ll", "\u0455\u04bb\u0435\u04cf\u04cf", "s\u04bbell"),
        *("\uff53hell", "\U0001d42c\U0001d421\U0001d41e\U0001d425\U0001d425", "sh\u202eell"),
        *("shell\u0300", "sh\u00e9ll", "\u13da\u13bb\u13ac\u13de\u13de"),
    ],
)
@pytest.mark.parametrize("kind", ["tool", "model"])
def test_no_name_that_looks_like_a_denied_one_is_granted(
    name: str, kind: Literal["model", "tool"]
) -> None:
    """Capitals, blanks, other scripts, characters without width, forms of compatibility."""
    assert verdict(Gate(CallRules(deny=["shell"])), ask("c", name, kind=kind)).verdict == "refused"
    assert verdict(Gate(CallRules(allow=["shell"])), ask("c", name, kind=kind)).verdict == "refused"
    asked = Gate(CallRules(approve=["shell"])).judge(ask("c", name, kind=kind))
    assert isinstance(asked, Waiting) or asked.verdict == "refused"
    # Where there are no rules, there is none to slip past.
    assert verdict(Gate(), ask("c", name, kind=kind)).verdict == "granted"


@pytest.mark.parametrize(
    "name",
    [
        *("models/gemini-2.5-pro", "gpt-4o", "mcp__server__tool", "anthropic/claude-3:beta"),
        *("us.anthropic.claude-v1:0", "Web search", "repo@v2", "f(x), y=1", "dateien_löschen"),
        *("Straße", "søk", "włącz", "çıktı", "tìm_kiếm", "検索", "检索_docs", "ファイル検索"),  # noqa: RUF001
        *("GPTツール", "검색", "поиск", "αναζήτηση", "بحث", "חיפוש", "खोज", "ค้นหา", "поиск_2"),
    ],
)
def test_an_honest_name_is_granted_in_every_language(name: str) -> None:
    """Rules about others do not refuse it, and one with its name means it."""
    check_pattern(name)
    assert verdict(Gate(CallRules(deny=["shell"])), ask("c", name)).verdict == "granted"
    assert verdict(Gate(CallRules(allow=[name])), ask("c", name)).verdict == "granted"
    assert verdict(Gate(CallRules(deny=[name])), ask("c", name)).verdict == "refused"


@pytest.mark.parametrize(
    ("pattern", "name", "args", "forbids", "allows"),
    [
        ("shell", "shell", {"cmd": "ls"}, True, True),
        ("shell", "Shell", {}, True, False),
        ("shell", "shell2", {}, False, False),
        ("sh*", "shell", {}, True, True),
        ("shell:*", "shell", None, True, True),
        ('shell:{"cmd":"ls*', "shell", {"cmd": "ls -l"}, True, True),
        ('shell:{"b":1,"a":"*"}', "shell", {"a": "x", "b": 1}, True, True),
        ("shell:ls*", "shell", "ls\n-l", True, True),
        ("shell:ls", "shell", "ls -l", False, False),
        ("mcp:git:*", "mcp", "git:push", True, True),
        ("v1:0", "v1:0", {}, True, True),
        ("fs:read*", "fs:read_all", {}, True, False),
        ('shell:["rm","x"]', "shell", ["rm", "x"], True, True),
        ('shell:["rm","x"]', "shell", "x", False, False),
        ("shell[1]", "shell[1]", {}, True, True),
        ("shell[1]", "shellx", {}, False, False),
        # One command, however it is written; a permission means no more than it says.
        ("shell:rm *", "shell", "rm -r x", True, True),
        ("shell:rm *", "shell", "rm\t-r x", True, False),
        ("shell:rm *", "shell", "\n rm \x0b -r x", True, False),
        ("shell:rm *", "shell", "RM -r x", True, False),
        ("shell:rm *", "shell", {"cmd": "rm -r x"}, True, True),
        ("shell:rm *", "shell", {"a": 1, "cmd": "rm -r x"}, True, False),
        ("shell:rm *", "shell", {"cmd": ["rm", "-r", 1]}, True, False),
        ("shell:rm *", "shell", [{"x": [["rm", "-r"]]}], True, False),
        ("shell:rm *", "shell", '{"cmd": "r\\u006d -r x", "n": 1}', True, False),
        ("shell:rm *", "shell", '{"cmd": "rm -r x", "n": "\\ud800"}', True, False),
        ("shell:rm *", "shell", ' {"a": "{\\"cmd\\":[\\"rm\\",\\"x\\"]}"}', True, False),
        ("shell:rm *", "shell", {"cmd": "ls", "why": "not rm"}, False, False),
    ],
)
def test_a_pattern_is_a_name_and_perhaps_arguments(
    pattern: str, name: str, args: object, forbids: bool, allows: bool
) -> None:
    """What forbids means every text in the arguments; what allows means all of them as they are."""
    asked = ask("c", name, args)
    assert CallPattern(pattern).forbids(asked, arguments_of(asked.args)) is forbids
    assert CallPattern(pattern).allows(asked, arguments_of(asked.args)) is allows


@pytest.mark.parametrize("pattern", ["\u0455hell", "shell\u200b:rm *", "tool: x", "x :y", "\u3164"])
def test_a_pattern_that_no_call_can_meet_is_refused(pattern: str) -> None:
    """Who copied it would believe in a protection that is none."""
    with pytest.raises(SpecError):
        check_pattern(pattern)


def test_arguments_too_long_to_look_at_pass_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are denied by what could mean them, and allowed by nothing that names arguments."""
    monkeypatch.setattr(arguments_module, "MAX_MATCHED_ARGUMENTS", 10)
    long = "ls " + "x" * 100
    assert verdict(Gate(CallRules(deny=["shell:rm*"])), ask("c", args=long)).verdict == "refused"
    assert verdict(Gate(CallRules(allow=["shell:ls*"])), ask("c", args=long)).verdict == "refused"
    assert isinstance(Gate(CallRules(approve=["shell:rm*"])).judge(ask("c", args=long)), Waiting)


def test_more_texts_than_anybody_looks_through_pass_no_rule() -> None:
    """What is asked for cannot be hidden behind thousands of others, nor cost us their time."""
    many = [*("x" for _ in range(5000)), "rm -r /"]
    assert verdict(Gate(CallRules(deny=["shell:rm*"])), ask("c", args=many)).verdict == "refused"
    assert verdict(Gate(CallRules(allow=["shell:[*"])), ask("c", args=many)).verdict == "refused"


def test_arguments_that_are_no_value_pass_no_rule() -> None:
    """Bytes that are no msgpack at all are denied by every pattern that looks at them."""
    bad = Ask(call="c", kind="tool", name="shell", args=msgspec.Raw(b"\xc1"))
    assert verdict(Gate(CallRules(deny=["shell:rm*"])), bad).verdict == "refused"


def test_a_pattern_made_to_be_slow_is_not() -> None:
    """Stars do not multiply the work: neither the caller's nor the agent's text hangs us."""
    pattern = CallPattern("s:" + "*a" * 40 + "b")
    asked = ask("c", "s", "a" * 60_000)
    assert not pattern.forbids(asked, arguments_of(asked.args))


# --- a person decides -------------------------------------------------------


def waiting_gate(*names: str) -> Gate:
    gate = Gate(CallRules(calls=3, approve=["shell:*"]))
    for number, name in enumerate(names, 1):
        assert gate.judge(ask(name)) == Waiting(name, "tool", "shell", "shell:*", number)
    return gate


def test_a_call_that_needs_approval_waits_and_is_granted_by_a_person() -> None:
    """The grant is a verdict like any other, and says who gave it."""
    gate = waiting_gate("c1")
    assert [waiting.call for waiting in gate.waiting] == ["c1"]
    given = gate.decide("c1", ANN, why=None)
    assert given is not None
    assert (given.verdict, given.actor) == ("granted", ANN)


def test_a_denied_call_is_refused_with_the_persons_words_and_costs_no_budget() -> None:
    """It was never made."""
    gate = waiting_gate("c1", "c2", "c3")
    given = gate.decide("c2", ANN, why="not today")
    assert given is not None
    assert (given.verdict, given.why, given.actor) == ("refused", "not today", ANN)
    assert verdict(gate, ask("c4", "other")).verdict == "granted"
    assert verdict(gate, ask("c5", "other")).verdict == "refused"


def test_calls_that_wait_take_the_budget_and_do_not_use_it_up() -> None:
    """Whoever decides on them may refuse them: the run is not ended for one more."""
    gate = Gate(CallRules(calls=2, approve=["*"]))
    for call in ("c1", "c2"):
        assert isinstance(gate.judge(ask(call)), Waiting)
    third = verdict(gate, ask("c3"))
    assert third.why == "the budget of 2 calls is taken, with 2 that wait for approval"
    assert gate.exceeded is None
    gate.decide("c1", ANN, why=None)
    gate.decide("c2", ANN, why=None)
    assert verdict(gate, ask("c4")).why == "the budget of 2 calls is used up"
    assert gate.exceeded is not None


def test_nobody_decides_on_a_call_that_does_not_wait() -> None:
    """Unknown, decided already, granted without a person: nothing happens."""
    gate = waiting_gate("c1")
    gate.judge(ask("c2", "other"))
    gate.decide("c1", ANN, why=None)
    assert [gate.decide(call, ANN, why=None) for call in ("c0", "c1", "c2")] == [None] * 3


def test_a_stop_answers_the_calls_that_wait() -> None:
    """Each is refused for the stop's reason, and no person can grant it any more."""
    gate = waiting_gate("c1", "c2")
    refused = gate.close("the run is being stopped")
    assert [(v.call, v.verdict, v.why) for v in refused] == [
        ("c1", "refused", "the run is being stopped"),
        ("c2", "refused", "the run is being stopped"),
    ]
    assert gate.decide("c1", ANN, why=None) is None
    assert gate.close("again") == []


def test_a_number_means_one_call_for_ever() -> None:
    """Numbers are ours and go on where calls were decided: nobody decides on another's."""
    gate = waiting_gate("7", "2")
    gate.decide("2", ANN, why=None)
    gate.decide("7", ANN, why="no")
    gate.judge(ask("1"))
    assert [(waiting.number, waiting.call) for waiting in gate.waiting] == [(3, "1")]


def test_a_waiting_id_cannot_be_asked_for_again() -> None:
    """An agent that repeats its ask does not get two calls out of one approval."""
    gate = waiting_gate("c1")
    assert verdict(gate, ask("c1")).why == "this call id was used before"


def test_a_flood_of_asks_for_approval_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads a thousand of them."""
    monkeypatch.setattr(gates, "MAX_WAITING", 2)
    gate = Gate(CallRules(approve=["*"]))
    assert isinstance(gate.judge(ask("c1")), Waiting)
    assert isinstance(gate.judge(ask("c2")), Waiting)
    assert verdict(gate, ask("c3")).why == "2 calls wait for approval already"
