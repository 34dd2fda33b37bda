"""What an agent returns, raises and reports arrives as it was meant."""

import json

import pytest

from agentctl_protocol.messages import (
    Artifact,
    Bye,
    Checkpoint,
    ErrorMessage,
    LogLine,
    Message,
    Progress,
    Ready,
    ResultMessage,
    Usage,
)
from agentctl_protocol.values import open_value
from agentctl_testkit.sdk import AGENTS, RUN_ID, ForkedAgents, StartAgent


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("None", None),
        ("True", True),
        ("7", 7),
        ("-2.5", -2.5),
        ("'text ü \U0001f600'", "text ü \U0001f600"),
        ("[1, [2, {'a': None}]]", [1, [2, {"a": None}]]),
        ("{'a': {'b': [1]}}", {"a": {"b": [1]}}),
        ("(1, 2)", [1, 2]),
        ("{1: 'int key'}", {"1": "int key"}),
        ("b'bytes'", "Ynl0ZXM="),
        ("'lone \\ud800 surrogate'", "lone \ufffd surrogate"),
        ("{'\\udfff': ['\\ud800']}", {"\ufffd": ["\ufffd"]}),
        ("float('nan')", None),
    ],
)
def test_value_is_what_a_json_reader_would_see(
    start: StartAgent, expression: str, expected: object
) -> None:
    """A returned value arrives as JSON would show it, and the agent exits with 0."""
    agent = start(f"def main(): return {expression}")
    assert agent.finish() == 0
    (result,) = agent.of(ResultMessage)
    value = open_value(result.value)
    assert json.loads(json.dumps(value).replace("NaN", "null")) == expected
    assert [type(message) for message in agent.heard[1:]] == [Ready, ResultMessage, Bye]
    assert agent.heard[-1] == Bye(cancelled=False)


@pytest.mark.parametrize(
    ("expression", "fragment"),
    [
        ("object()", "object"),
        ("1 << 70", "not a JSON value"),
        ("threading.Lock()", "lock"),
        ("iter(())", "tuple_iterator"),
    ],
)
def test_value_that_json_cannot_say_is_an_error_that_says_so(
    start: StartAgent, expression: str, fragment: str
) -> None:
    """A value of another kind ends the agent with an error that names the type."""
    agent = start(f"def main(): return {expression}")
    assert agent.finish() == 1
    (error,) = agent.of(ErrorMessage)
    assert error.kind == "TypeError"
    assert "the returned value" in error.text
    assert fragment in error.text


@pytest.mark.parametrize("container", ["[value]", "(value,)", "{'a': value}"])
@pytest.mark.parametrize("depth", [101, 5000, 100_000])
def test_value_that_is_nested_too_deeply_is_an_error(
    start: StartAgent, depth: int, container: str
) -> None:
    """Depth that could exhaust a reader never leaves the agent."""
    agent = start(
        f"""
        def main():
            value = []
            for _ in range({depth}):
                value = {container}
            return value
        """
    )
    assert agent.finish() == 1
    (error,) = agent.of(ErrorMessage)
    assert "nested" in error.text


def test_value_too_big_for_a_frame_is_an_error_with_sizes(start: StartAgent) -> None:
    """A value over the frame limit names its size, the limit and what to do."""
    agent = start("def main(): return 'x' * 2_000_000")
    assert agent.finish() == 1
    (error,) = agent.of(ErrorMessage)
    assert error.kind == "ValueError"
    assert "2000005 bytes" in error.text
    assert "run.artifact" in error.text


def test_exception_arrives_with_kind_one_line_and_the_agents_own_traceback(
    start: StartAgent,
) -> None:
    """The traceback starts at the agent's code; the text is one line."""
    agent = start(
        """
        class Trouble(Exception): pass
        def deeper(): raise Trouble("first line\\nsecond \\ud800")
        def main(): deeper()
        """
    )
    assert agent.finish() == 1
    (error,) = agent.of(ErrorMessage)
    assert (error.kind, error.text, error.loading) == (
        "Trouble",
        "first line second \ufffd",
        False,
    )
    lines = error.traceback.splitlines()
    assert lines[0].startswith("Traceback")
    assert "agent_under_test.py" in lines[1]
    assert "in main" in lines[1]
    assert "agentctl_child" not in error.traceback


def test_exception_whose_text_cannot_be_made_is_still_reported(start: StartAgent) -> None:
    """An exception that raises in its own __str__ does not take the report with it."""
    agent = start(
        """
        class Nasty(BaseException):
            def __str__(self): raise RuntimeError
        def main(): raise Nasty
        """
    )
    assert agent.finish() == 1
    (error,) = agent.of(ErrorMessage)
    assert error.kind == "Nasty"


def test_endless_recursion_gives_a_bounded_traceback(start: StartAgent) -> None:
    """A traceback is cut to 64 KiB, its end kept."""
    agent = start(
        """
        def a(n): return b(n + 1)
        def b(n): return a(n + 1)
        def main(): return a(0)
        """
    )
    assert agent.finish() == 1
    (error,) = agent.of(ErrorMessage)
    assert error.kind == "RecursionError"
    assert len(error.traceback) <= 1 << 16
    assert error.traceback.rstrip().splitlines()[-1].startswith("RecursionError")


@pytest.mark.parametrize(
    ("statement", "status"),
    [
        ("sys.exit()", 0),
        ("sys.exit(0)", 0),
        ("sys.exit(3)", 3),
        ("sys.exit('no')", 1),
        ("sys.exit(256)", 1),
    ],
)
def test_system_exit_of_a_function_is_the_exit_status(
    start: StartAgent, statement: str, status: int
) -> None:
    """``sys.exit`` means what it means in any program."""
    agent = start(f"def main(): {statement}")
    assert agent.finish() == status
    assert len(agent.of(ResultMessage)) == (status == 0)
    assert len(agent.of(ErrorMessage)) == (status != 0)


def test_every_kind_of_event_arrives_in_order(start: StartAgent) -> None:
    """What is reported arrives in the order of the calls, as it was given."""
    agent = start(
        """
        def main():
            run.emit_text("t", source="s")
            run.emit_message("m", source="s", kind="handoff", target="b")
            run.progress(1, 3, "a third")
            run.usage(5, 7, model="m", quality="partial")
            run.checkpoint({"step": 1})
            run.artifact("out.txt", note="the output")
            run.log("l", level="warning")
            return run.id
        """
    )
    assert agent.finish() == 0
    _text, message, progress, usage, checkpoint, artifact, line = agent.events()
    assert message == Message(text="m", source="s", kind="handoff", target="b")
    assert progress == Progress(done=1, total=3, note="a third")
    assert usage == Usage(model="m", prompt_tokens=5, completion_tokens=7, quality="partial")
    assert isinstance(checkpoint, Checkpoint)
    assert open_value(checkpoint.state) == {"step": 1}
    assert artifact == Artifact(path="out.txt", note="the output")
    assert line == LogLine(text="l", level="warning")
    assert open_value(agent.of(ResultMessage)[0].value) == RUN_ID


@pytest.mark.parametrize("max_frame", [4096, 1 << 20])
def test_text_of_any_length_arrives_whole(start: StartAgent, max_frame: int) -> None:
    """A text of megabytes and of any characters is split into pieces that fit."""
    agent = start(
        """
        def main():
            run.emit_text("aü\U0001f600" * 400_000)
            run.emit_text("lone \\udc80")
        """,
        max_frame=max_frame,
    )
    assert agent.finish() == 0
    assert "".join(agent.texts()) == "aü\U0001f600" * 400_000 + "lone \ufffd"
    assert max(len(text.encode()) for text in agent.texts()) <= max_frame


@pytest.mark.parametrize(
    "call",
    [
        "emit_text(b'bytes')",
        "emit_text('x', source='s' * 300)",
        "emit_message('m', kind='shout')",
        "emit_message('m' * 2_000_000)",
        "progress(float('nan'))",
        "progress('half')",
        "usage(-1)",
        "usage(1.5)",
        "usage(1 << 64)",
        "usage(quality='good')",
        "checkpoint(object())",
        "checkpoint('x' * 2_000_000)",
        "artifact(7)",
        "artifact('')",
        "log('l', level='loud')",
        "tool_call('', {})",
        "tool_call('x' * 300)",
        "model_call('m', object())",
    ],
)
def test_mistake_is_an_error_at_the_callers_line_and_nothing_is_sent(
    start: StartAgent, call: str
) -> None:
    """An argument that cannot be sent raises ValueError; the run goes on."""
    agent = start(
        f"""
        def main():
            try:
                run.{call}
            except ValueError as error:
                return str(error)
        """
    )
    assert agent.finish() == 0
    assert len(open_value(agent.of(ResultMessage)[0].value)) > 5
    assert agent.events() == []


def test_flood_of_events_arrives_complete_and_in_order(start: StartAgent) -> None:
    """A queue that is full is sent by the emitter: nothing is dropped, nothing overtakes."""
    agent = start(
        """
        def main():
            for number in range(100_000):
                run.emit_text(str(number))
        """
    )
    assert agent.finish() == 0
    assert agent.texts() == [str(number) for number in range(100_000)]


def test_events_of_many_threads_keep_each_threads_order(start: StartAgent) -> None:
    """Threads that report at once never tear a frame, nor reorder what one of them said."""
    agent = start(
        """
        def main():
            def work(name):
                for number in range(3000):
                    run.emit_text(str(number), source=name)
                    if number % 100 == 0:
                        with run.tool_call(name): pass
            threads = [threading.Thread(target=work, args=(n,)) for n in "abcd"]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
        """
    )
    assert agent.finish(grant=True) == 0
    for name in "abcd":
        mine = [int(event.text) for event in agent.events() if event.source == name]
        assert mine == list(range(3000))


def test_event_is_sent_though_the_agent_never_calls_again(start: StartAgent) -> None:
    """A single event needs no flush to arrive while the agent works on."""
    agent = start("def main(): run.emit_text('here'); time.sleep(60)")
    agent.hear_text("here")


@pytest.mark.parametrize("file", ["polite_sync.py", "polite_asyncio.py"])
def test_polite_agents_do_their_work(agents: ForkedAgents, file: str) -> None:
    """The examples of each mode succeed."""
    with agents.start(f"{AGENTS / file}:main", given=4) as agent:
        assert agent.finish(grant=True) == 0
        (result,) = agent.of(ResultMessage)
        assert len(next(iter(open_value(result.value).values()))) == 4
