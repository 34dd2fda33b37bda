"""Generators as agents: what they yield is reported, what they return is the result."""

import pytest

from agentctl_protocol.messages import (
    Cancel,
    Checkpoint,
    ErrorMessage,
    Events,
    Input,
    InputEnd,
    Message,
    Ready,
    Text,
)
from agentctl_protocol.values import pack_value
from agentctl_testkit.sdk import AGENTS, ForkedAgents, StartAgent

#: How each kind of generator begins and waits.
KINDS = {
    "generator": ("def", "time.sleep(60)"),
    "asyncio": ("async def", "await asyncio.sleep(60)"),
    "trio": ("async def", "await trio.sleep(60)"),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def start_kind(kind: str, start: StartAgent, request: pytest.FixtureRequest) -> StartAgent:
    """Starts a source text in which DEF and SLEEP mean what they mean for this kind."""
    starter = request.getfixturevalue("start_trio") if kind == "trio" else start
    define, sleep = KINDS[kind]

    def start_it(source: str, *first: object, **how: object) -> object:
        return starter(source.replace("DEF", define).replace("SLEEP", sleep), *first, **how)

    return start_it  # type: ignore[return-value]


def test_yielded_values_are_events_in_order(start_kind: StartAgent) -> None:
    """A str is text, other values are messages with their JSON, None is nothing."""
    agent = start_kind(
        """
        DEF main():
            yield "text"
            yield {"a": [1, None], 2: "two"}
            yield None
            run.emit_text("reported")
            yield 7
            yield "x" * 200_000
        """
    )
    assert agent.finish() == 0
    text, message, reported, number, *pieces = agent.events()
    assert [text, reported] == [Text(text="text"), Text(text="reported")]
    assert message == Message(text='{"a":[1,null],"2":"two"}')
    assert number == Message(text="7")
    assert "".join(piece.text for piece in pieces) == "x" * 200_000
    assert agent.value() is None


def test_mistake_in_what_is_yielded_is_raised_at_the_yield(start_kind: StartAgent) -> None:
    """A value that is not JSON is a ValueError where it was yielded; the generator goes on."""
    agent = start_kind(
        """
        DEF main():
            try: yield object()
            except ValueError as error: yield str(error)
            yield "goes on"
            yield object()
        """
    )
    assert agent.finish() == 1
    assert "the yielded value" in agent.texts()[0]
    assert agent.texts()[1:] == ["goes on"]
    (error,) = agent.of(ErrorMessage)
    assert error.kind == "ValueError"


def test_exception_of_a_generator_is_the_agents(start_kind: StartAgent) -> None:
    """It arrives with a traceback that begins at the agent's code."""
    agent = start_kind("DEF main():\n    yield 'here'\n    raise KeyError('no')")
    assert agent.finish() == 1
    assert agent.texts() == ["here"]
    (error,) = agent.of(ErrorMessage)
    assert error.kind == "KeyError"
    assert "agent_under_test.py" in error.traceback.splitlines()[1]


def test_stop_reaches_a_generator_where_it_waits(start_kind: StartAgent) -> None:
    """Its own way of cancellation ends the wait; what it yields while it handles that counts."""
    agent = start_kind(
        """
        DEF main():
            try:
                yield "here"
                SLEEP
            finally:
                run.checkpoint({"saved": 1})
                yield "partial"
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.of(ErrorMessage) == []
    assert len(agent.of(Checkpoint)) == 1
    assert agent.texts() == ["here", "partial"]


def test_stop_breaks_sync_code_in_a_generator(start_kind: StartAgent) -> None:
    """Code that blocks the thread, and with it the loop if there is one, is interrupted."""
    agent = start_kind("DEF main():\n    yield 'here'\n    time.sleep(60)\n    yield 'never'")
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.texts() == ["here"]


def test_stop_is_raised_at_the_yield(start_kind: StartAgent) -> None:
    """A generator that never waits has RunCancelled raised where it yields."""
    agent = start_kind(
        """
        DEF main():
            try:
                while True: yield "more"
            except RunCancelled as stop:
                run.checkpoint({"saved": 1})
                yield f"last: {stop}"
                yield "never"
        """
    )
    agent.hear(Events)
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.of(ErrorMessage) == []
    assert len(agent.of(Checkpoint)) == 1
    assert agent.texts()[-1] == "last: enough"


def test_generator_that_swallows_the_stop_is_closed(start_kind: StartAgent) -> None:
    """What it yields in answer is reported; then it is closed, and its finally runs."""
    agent = start_kind(
        """
        DEF main():
            try:
                while True:
                    try: yield "more"
                    except RunCancelled: run.log("swallowed")
            finally: run.log("closed")
        """
    )
    agent.hear(Events)
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert [line.text for line in agent.events() if not isinstance(line, Text)] == [
        "swallowed",
        "closed",
    ]


def test_stop_with_the_start_keeps_a_generator_from_being_called(start_kind: StartAgent) -> None:
    """A generator whose stop was there first does not run a line."""
    agent = start_kind(
        "DEF main():\n    yield run.emit_text('ran')", Cancel(reason="user", deadline_s=5)
    )
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.of(Ready) == []


def test_generator_that_a_decorator_hides_is_run(start_kind: StartAgent) -> None:
    """What a plain function gives decides, too."""
    agent = start_kind(
        """
        def decorated(function):
            def wrapper(given): return function(given)
            return wrapper
        @decorated
        DEF main(given): yield given
        """,
        given="given",
    )
    assert agent.finish() == 0
    assert agent.texts() == ["given"]


def test_value_that_a_generator_returns_is_the_result(start: StartAgent) -> None:
    """As any function's, whatever it has yielded."""
    agent = start("def main(given):\n    yield 'here'\n    return given", given=[1, 2])
    assert agent.finish() == 0
    assert agent.value() == [1, 2]


def test_value_that_a_generator_returns_after_the_stop_is_kept(start: StartAgent) -> None:
    """An agent that answers a stop with a value has it sent."""
    agent = start(
        """
        def main():
            try:
                while True: yield "more"
            except RunCancelled: return "value"
        """
    )
    agent.hear(Events)
    agent.cancel()
    assert agent.finish() == 0
    assert agent.value() == "value"


def test_generator_that_ignores_its_close_is_an_error(start: StartAgent) -> None:
    """One that yields whatever happens fails with Python's own words for that."""
    agent = start(
        """
        def main():
            while True:
                try: yield "more"
                except BaseException: pass
        """
    )
    agent.hear(Events)
    agent.cancel()
    assert agent.finish() == 1
    (error,) = agent.of(ErrorMessage)
    assert (error.kind, error.text) == ("RuntimeError", "generator ignored GeneratorExit")


@pytest.mark.parametrize(
    ("file", "value"),
    [("polite_generator.py", {"done": [1, 2]}), ("polite_async_generator.py", None)],
)
def test_polite_generators_do_their_work(agents: ForkedAgents, file: str, value: object) -> None:
    """Calls are made inside, text is yielded, a returned value is the result."""
    with agents.start(f"{AGENTS / file}:main", given=2) as agent:
        assert agent.finish(grant=True) == 0
        assert agent.value() == value
        assert len(agent.texts()) == 2


@pytest.mark.parametrize("file", ["polite_generator.py", "polite_async_generator.py"])
def test_inputs_arrive_in_a_generator(agents: ForkedAgents, file: str) -> None:
    """run.inputs() gives each item between the yields, and ends when no more follow."""
    with agents.start(f"{AGENTS / file}:echo") as agent:
        agent.say(Input(data=pack_value(1)))
        agent.hear(Events)
        agent.say(Input(data=pack_value("two")), InputEnd())
        assert agent.finish() == 0
        assert [message.text for message in agent.of(Message)] == ['{"echo":1}', '{"echo":"two"}']
