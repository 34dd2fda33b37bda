"""The SDK in functions written for trio."""

import pytest

from agentctl_protocol.messages import (
    Ask,
    Beat,
    CallFinished,
    Cancel,
    Checkpoint,
    ErrorMessage,
    Events,
    Input,
    InputEnd,
    Ping,
    Ready,
)
from agentctl_protocol.values import open_value, pack_value
from agentctl_testkit.sdk import AGENTS, ForkedAgents, StartAgent


@pytest.mark.parametrize(
    "blocking",
    [
        "await trio.sleep(60)",
        "await trio.sleep_forever()",
        "await trio.Event().wait()",
        "await trio.to_thread.run_sync(time.sleep, 60, abandon_on_cancel=True)",
        "await trio.to_thread.run_sync(run.cancel_token.wait); await trio.sleep(60)",
        "[item async for item in run.inputs()]",
        "\n        while True: await trio.lowlevel.checkpoint()",
        "time.sleep(60)",
        "lock = threading.Lock(); lock.acquire(); lock.acquire()",
        "run.cancel_token.wait(); time.sleep(60)",
        "next(run.inputs())",
        "\n        while True: pass",
    ],
)
def test_stop_ends_what_a_trio_task_waits_for(start_trio: StartAgent, blocking: str) -> None:
    """The scope is cancelled; sync code that blocks the loop is interrupted after 0.2 s."""
    agent = start_trio(
        f"""
    async def other(): await trio.sleep(60)
    async def main():
      async with trio.open_nursery() as nursery:
        nursery.start_soon(other)
        run.emit_text('here'); {blocking}
"""
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.of(ErrorMessage) == []


def test_stop_with_the_start_keeps_a_trio_function_from_being_called(
    start_trio: StartAgent,
) -> None:
    """A trio function whose stop was there first is never called."""
    agent = start_trio(
        "async def main(): run.emit_text('ran')", Cancel(reason="user", deadline_s=5)
    )
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.of(Ready) == []


def test_cancelled_trio_task_can_save_its_work(start_trio: StartAgent) -> None:
    """While Cancelled is handled, reports go through, across shielded awaits."""
    agent = start_trio(
        """
        async def save():
            with trio.CancelScope(shield=True):
                await trio.sleep(0.01)
                run.checkpoint({"saved": 1})
                await trio.sleep(0.01)
            run.emit_text("partial")
        async def main():
            try:
                run.emit_text("here")
                await trio.sleep(60)
            finally:
                await save()
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert len(agent.of(Checkpoint)) == 1
    assert agent.texts() == ["here", "partial"]


def test_trio_function_that_answers_the_stop_with_a_value_has_it_kept(
    start_trio: StartAgent,
) -> None:
    """Reports of code that swallowed its cancel raise RunCancelled; a value is sent."""
    agent = start_trio(
        """
        async def main():
            try:
                run.emit_text("here")
                await trio.sleep(60)
            except trio.Cancelled: pass
            try: run.emit_text("never")
            except RunCancelled: return "value"
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.value() == "value"
    assert agent.texts() == ["here"]


def test_trio_call_after_a_swallowed_cancel_is_never_made(start_trio: StartAgent) -> None:
    """One that goes on calling is told once more, and then proves it to the supervisor."""
    agent = start_trio(
        """
        async def call(name):
            async with run.tool_call(name): run.emit_text("made")
        async def main():
            try:
                run.emit_text("here")
                await trio.sleep(60)
            except trio.Cancelled: pass
            try: await call("told")
            except RunCancelled: pass
            await call("ignores it")
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert [ask.name for ask in agent.of(Ask)] == ["ignores it"]
    assert agent.texts() == ["here"]


def test_pending_asks_of_trio_tasks_do_not_block_the_loop(start_trio: StartAgent) -> None:
    """Other tasks run while calls wait for their verdicts, which may come in any order."""
    agent = start_trio(
        """
        async def call(name):
            try:
                async with run.tool_call(name) as call: call.result = name
            except CallRefused as refused: run.emit_text(refused.why)
            else: run.emit_text(name)
        async def main():
            async with trio.open_nursery() as nursery:
                for name in "abc": nursery.start_soon(call, name)
                await trio.sleep(0.01)
                run.emit_text("loop turns")
        """
    )
    asks = {ask.name: ask for ask in (agent.hear(Ask) for _ in range(3))}
    agent.hear_text("loop turns")
    for name in "cb":
        agent.grant(asks[name])
        agent.hear_text(name)
    agent.refuse(asks["a"], "a policy")
    agent.hear_text("a policy")
    assert agent.finish() == 0
    assert [open_value(call.result) for call in agent.of(CallFinished)] == ["c", "b"]


def test_stop_ends_asks_that_wait_in_several_trio_tasks(start_trio: StartAgent) -> None:
    """Every pending ask ends at once, and none of the calls is made."""
    agent = start_trio(
        """
        async def call(name):
            async with run.tool_call(name): run.emit_text("made")
        async def main():
            async with trio.open_nursery() as nursery:
                for name in "abc": nursery.start_soon(call, name)
        """
    )
    for _ in range(3):
        agent.hear(Ask)
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.events() == []


def test_stop_inside_a_call_of_a_trio_task_is_reported_as_cut_short(
    start_trio: StartAgent,
) -> None:
    """A call that Cancelled leaves is finished as cancelled, not as an error."""
    agent = start_trio(
        """
        async def main():
            async with run.model_call("slow"):
                run.emit_text("in it")
                await trio.sleep(60)
        """
    )
    agent.grant(agent.hear(Ask))
    agent.hear_text("in it")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert [call.outcome for call in agent.of(CallFinished)] == ["cancelled"]


def test_beat_tells_whether_trio_turns(start_trio: StartAgent) -> None:
    """A ping is answered while the loop is blocked, with a loop count that stands still."""
    agent = start_trio(
        """
        async def main():
            run.emit_text("turning")
            async for item in run.inputs():
                run.emit_text("blocking")
                time.sleep(60)
        """
    )
    agent.hear_text("turning")
    agent.say(Ping())
    while agent.hear(Beat).loop < 3:
        agent.say(Ping())
    agent.say(Input(data=pack_value("block")))
    agent.hear_text("blocking")
    agent.say(Ping())
    standing = agent.hear(Beat).loop
    for _ in range(3):
        agent.say(Ping())
        assert agent.hear(Beat).loop == standing


def test_polite_trio_agent_does_its_work(trio_agents: ForkedAgents) -> None:
    """Calls side by side are granted, and their results returned."""
    with trio_agents.start(f"{AGENTS / 'polite_trio.py'}:main", given=4) as agent:
        assert agent.finish(grant=True) == 0
        assert agent.value() == {"squares": [0, 1, 4, 9]}


def test_inputs_arrive_in_a_trio_task(trio_agents: ForkedAgents) -> None:
    """run.inputs() gives each item to ``async for`` and ends when no more follow."""
    with trio_agents.start(f"{AGENTS / 'polite_trio.py'}:echo") as agent:
        agent.say(Input(data=pack_value({"n": 1})), Input(data=pack_value("two")))
        agent.hear(Events)
        agent.say(Input(data=pack_value(None)), InputEnd())
        assert agent.finish() == 0
        assert agent.value() == [{"n": 1}, "two", None]


def test_traceback_of_a_trio_function_starts_at_the_agents_code(start_trio: StartAgent) -> None:
    """Neither our frames nor trio's are in front."""
    agent = start_trio("async def main(): raise KeyError('no')")
    assert agent.finish() == 1
    (error,) = agent.of(ErrorMessage)
    assert error.kind == "KeyError"
    assert "agent_under_test.py" in error.traceback.splitlines()[1]


def test_cancelled_scope_of_the_agents_own_is_no_stop(start_trio: StartAgent) -> None:
    """A time-out made with trio ends what it is around; the run goes on."""
    agent = start_trio(
        """
        async def main():
            with trio.move_on_after(0.01) as scope: await trio.sleep(60)
            run.emit_text("goes on")
            return scope.cancelled_caught
        """
    )
    assert agent.finish() == 0
    assert agent.value() is True
    assert agent.texts() == ["goes on"]
