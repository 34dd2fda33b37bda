"""The SDK in functions written for asyncio."""

import pytest

from agentctl_protocol.messages import (
    Ask,
    Beat,
    CallFinished,
    Cancel,
    Checkpoint,
    ErrorMessage,
    Input,
    Ping,
    Ready,
)
from agentctl_protocol.values import open_value, pack_value
from agentctl_testkit.sdk import StartAgent


@pytest.mark.parametrize(
    "blocking",
    [
        "await asyncio.sleep(60)",
        "await asyncio.get_running_loop().create_future()",
        "await asyncio.gather(*(asyncio.sleep(60) for _ in range(9)))",
        "await asyncio.to_thread(time.sleep, 60)",
        "[item async for item in run.inputs()]",
        "time.sleep(60)",
        "threading.Lock().acquire(); lock = threading.Lock(); lock.acquire(); lock.acquire()",
        "run.cancel_token.wait(); time.sleep(60)",
        "next(run.inputs())",
    ],
)
def test_stop_ends_what_a_coroutine_waits_for(start: StartAgent, blocking: str) -> None:
    """The task is cancelled; sync code that blocks the loop is interrupted after 0.2 s."""
    agent = start(f"async def main():\n    run.emit_text('here'); {blocking}")
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.of(ErrorMessage) == []


def test_stop_with_the_start_is_honoured(start: StartAgent) -> None:
    """A coroutine function whose stop was there first is never called."""
    agent = start("async def main(): run.emit_text('ran')", Cancel(reason="user", deadline_s=5))
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.of(Ready) == []


def test_cancelled_task_can_save_its_work(start: StartAgent) -> None:
    """While CancelledError is handled, reports go through, across awaits and nested calls."""
    agent = start(
        """
        async def save():
            await asyncio.sleep(0.01)
            run.checkpoint({"saved": 1})
            await asyncio.sleep(0.01)
            run.emit_text("partial")
        async def main():
            try:
                run.emit_text("here")
                await asyncio.sleep(60)
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


def test_swallowed_cancel_is_raised_again_and_its_value_kept(start: StartAgent) -> None:
    """A coroutine that swallows its cancel meets it at its next report; its value is sent."""
    agent = start(
        """
        async def main():
            try:
                run.emit_text("here")
                await asyncio.sleep(60)
            except asyncio.CancelledError: pass
            try: run.emit_text("never")
            except RunCancelled: return "value"
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.value() == "value"
    assert agent.texts() == ["here"]


def test_call_after_a_swallowed_cancel_is_asked_and_never_made(start: StartAgent) -> None:
    """An asyncio agent that goes on calling proves it to the supervisor."""
    agent = start(
        """
        async def main():
            try:
                run.emit_text("here")
                await asyncio.sleep(60)
            except asyncio.CancelledError: pass
            async with run.tool_call("ignored the stop"): return "made"
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert [ask.name for ask in agent.of(Ask)] == ["ignored the stop"]


def test_pending_asks_do_not_block_the_loop(start: StartAgent) -> None:
    """Other tasks run while calls wait for their verdicts, which may come in any order."""
    agent = start(
        """
        async def call(name):
            async with run.tool_call(name) as call: call.result = name
            run.emit_text(name)
        async def main():
            tasks = [asyncio.create_task(call(name)) for name in "abc"]
            await asyncio.sleep(0.01)
            run.emit_text("loop turns")
            await asyncio.gather(*tasks)
        """
    )
    asks = [agent.hear(Ask) for _ in range(3)]
    agent.hear_text("loop turns")
    for ask in reversed(asks):
        agent.grant(ask)
        agent.hear_text(ask.name)
    assert agent.finish() == 0
    assert [open_value(call.result) for call in agent.of(CallFinished)] == ["c", "b", "a"]


def test_stop_ends_asks_that_wait_in_several_tasks(start: StartAgent) -> None:
    """Every pending ask ends at once, and none of the calls is made."""
    agent = start(
        """
        async def call(name):
            async with run.tool_call(name): run.emit_text("made")
        async def main():
            async with asyncio.TaskGroup() as group:
                for name in "abc": group.create_task(call(name))
        """
    )
    for _ in range(3):
        agent.hear(Ask)
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert agent.events() == []


def test_refused_call_is_an_exception_in_its_task_only(start: StartAgent) -> None:
    """CallRefused is raised where the call was to be made; other calls go on."""
    agent = start(
        """
        async def call(name):
            try:
                async with run.tool_call(name): return "made"
            except CallRefused as refused: return refused.why
        async def main(): return await asyncio.gather(call("a"), call("b"))
        """
    )
    first, second = agent.hear(Ask), agent.hear(Ask)
    agent.refuse(first, "a policy")
    agent.grant(second)
    assert agent.finish() == 0
    assert agent.value() == ["a policy", "made"]


def test_tasks_left_behind_are_cancelled_after_the_value_was_sent(start: StartAgent) -> None:
    """The value does not wait for the cleaning up of other tasks, which still happens."""
    agent = start(
        """
        async def straggler():
            try: await asyncio.sleep(60)
            finally: run.emit_text("cleaned up")
        async def main():
            asyncio.create_task(straggler())
            await asyncio.sleep(0)
            return 1
        """
    )
    assert agent.finish() == 0
    assert [type(message).__name__ for message in agent.heard[-3:]] == [
        "ResultMessage",
        "Events",
        "Bye",
    ]


def test_executor_thread_does_not_keep_the_process_alive(start: StartAgent) -> None:
    """The process ends with its function, not with a thread that sleeps on."""
    agent = start(
        """
        async def main():
            asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
        """
    )
    assert agent.finish() == 0


def test_beat_tells_whether_the_loop_turns(start: StartAgent) -> None:
    """A ping is answered while the loop is blocked, with a loop count that stands still."""
    agent = start(
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
    assert [beat.thread for beat in agent.of(Beat)] == list(range(1, len(agent.of(Beat)) + 1))


def test_sync_function_that_gives_a_coroutine_is_driven(start: StartAgent) -> None:
    """A decorator that hides ``async def`` does not make an agent fail."""
    agent = start(
        """
        def decorated(function):
            def wrapper(given): return function(given)
            return wrapper
        @decorated
        async def main(given):
            await asyncio.sleep(0)
            return given
        """,
        given=7,
    )
    assert agent.finish() == 0
    assert agent.value() == 7


def test_cancelled_error_without_a_stop_is_an_error(start: StartAgent) -> None:
    """A task that cancels itself has failed; nobody has stopped it."""
    agent = start("async def main(): raise asyncio.CancelledError")
    assert agent.finish() == 1
    (error,) = agent.of(ErrorMessage)
    assert error.kind == "CancelledError"
