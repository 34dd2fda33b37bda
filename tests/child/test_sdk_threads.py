"""The SDK in the threads of an agent, whatever runs its main one."""

import pytest

from agentctl_protocol.messages import Ask, CallFinished, LogLine
from agentctl_protocol.values import open_value
from agentctl_testkit.sdk import StartAgent


@pytest.mark.parametrize(
    "waiting",
    [
        "run.tool_call('t').__enter__()",
        "next(run.inputs())",
        "run.cancel_token.wait(); run.emit_text('never')",
        "\n            while True: run.emit_text('more'); time.sleep(0.001)",
    ],
)
def test_stop_ends_what_a_worker_thread_waits_for(start: StartAgent, waiting: str) -> None:
    """RunCancelled is raised in the thread, at its call, and is no traceback on stderr."""
    agent = start(
        f"""
        def work():
            run.log("here")
            {waiting}
        def main():
            thread = threading.Thread(target=work)
            thread.start()
            try: thread.join()
            finally: thread.join()
        """
    )
    while not agent.of(LogLine):
        agent.next_message()
    agent.cancel()
    assert agent.finish() == 0
    assert agent.was_cancelled
    assert "never" not in agent.texts()
    assert agent.stderr() == ""


@pytest.mark.parametrize(
    ("library", "main"),
    [
        ("start", "await asyncio.gather(*(asyncio.to_thread(work, n) for n in range(3)))"),
        (
            "start_trio",
            (
                "\n  async with trio.open_nursery() as nursery:"
                "\n    for n in range(3): nursery.start_soon(trio.to_thread.run_sync, work, n)"
            ),
        ),
    ],
)
def test_worker_threads_of_a_loop_make_calls(
    request: pytest.FixtureRequest, library: str, main: str
) -> None:
    """``with`` in a thread asks beside the loop, which goes on meanwhile."""
    start: StartAgent = request.getfixturevalue(library)
    agent = start(
        f"""
def work(number):
    with run.tool_call("square", number) as call: call.result = number * number
async def main():
    {main}
"""
    )
    asks = [agent.hear(Ask) for _ in range(3)]
    for ask in asks:
        agent.grant(ask)
    assert agent.finish() == 0
    assert sorted(open_value(ask.args) for ask in asks) == [0, 1, 2]
    assert sorted(open_value(call.result) for call in agent.of(CallFinished)) == [0, 1, 4]


@pytest.mark.parametrize(
    ("library", "sleep"),
    [("start", "await asyncio.sleep(60)"), ("start_trio", "await trio.sleep(60)")],
)
def test_callbacks_run_before_a_task_is_cancelled(
    request: pytest.FixtureRequest, library: str, sleep: str
) -> None:
    """In a thread of the SDK, so that they can tell threads which no loop knows."""
    start: StartAgent = request.getfixturevalue(library)
    agent = start(
        f"""
        async def main():
            seen = []
            def callback(): seen.append(threading.current_thread() is threading.main_thread())
            run.cancel_token.add_callback(callback)
            run.emit_text("here")
            try: {sleep}
            except BaseException: return seen
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.value() == [False]


def test_callback_that_a_thread_adds_as_the_stop_comes_is_called(start: StartAgent) -> None:
    """There is no moment in which a callback is forgotten; one that was removed is not called."""
    agent = start(
        """
        def main():
            called = threading.Semaphore(0)
            removed = []
            def work():
                run.cancel_token.wait()
                for _ in range(100): run.cancel_token.add_callback(called.release)
            run.cancel_token.add_callback(lambda: removed.append("called"))()
            for _ in range(3): threading.Thread(target=work).start()
            try: run.emit_text("here"); time.sleep(60)
            except RunCancelled:
                for _ in range(300): called.acquire()
                return removed
        """
    )
    agent.hear_text("here")
    agent.cancel()
    assert agent.finish() == 0
    assert agent.value() == []


def test_thread_learns_why_and_how_long_it_has(start: StartAgent) -> None:
    """The token carries reason, detail and the seconds that are left, before and after."""
    agent = start(
        """
        def main():
            token = run.cancel_token
            before = [token.is_cancelled, token.reason, token.wait(0.01), token.wait(0)]
            try: run.emit_text("here"); time.sleep(60)
            except RunCancelled: pass
            return before, [token.is_cancelled, token.reason, token.detail, token.wait()], \\
                4 < token.seconds_left <= 5
        """
    )
    agent.hear_text("here")
    agent.cancel("time", "over")
    assert agent.finish() == 0
    assert agent.value() == [[False, "", False, False], [True, "time", "over", True], True]
