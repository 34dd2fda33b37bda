"""Threads that are kept: what runs on them, and what happens when no other can be started."""

import threading
from collections.abc import Callable

import pytest
import trio
import trio.testing

from agentctl_supervisor.event_loop.worker_threads import run_sync, worker_threads


@pytest.fixture
def no_more(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, no thread can be started, as in a full table of processes."""

    def fail(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    return lambda: monkeypatch.setattr(threading.Thread, "start", fail)


async def test_work_is_done_when_no_thread_can_be_started(no_more: Callable[[], None]) -> None:
    """A value and an exception come back, from one of the threads that were there."""
    with worker_threads(records=1):
        no_more()
        ours = threading.get_ident()
        assert await run_sync("records", threading.get_ident) != ours
        with pytest.raises(ZeroDivisionError):
            await run_sync("records", divmod, 1, 0)


async def test_more_jobs_than_threads_are_all_done(no_more: Callable[[], None]) -> None:
    """They wait for their turn."""
    done: list[int] = []
    with worker_threads(records=2):
        no_more()
        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(run_sync, "records", done.append, number)
    assert sorted(done) == list(range(50))


async def test_a_job_that_hangs_is_left_behind_and_its_thread_replaced() -> None:
    """Who gave it up goes on at once, and so does the next one."""
    go_on = threading.Event()
    with worker_threads(workspaces=1):
        with trio.move_on_after(0.01) as scope:
            await run_sync("workspaces", go_on.wait, abandon_on_cancel=True)
        assert scope.cancelled_caught
        with trio.fail_after(10):
            assert await run_sync("workspaces", lambda: 7) == 7
        go_on.set()
        with trio.fail_after(10):
            assert await run_sync("workspaces", lambda: 8) == 8


async def test_a_job_that_was_given_up_before_its_turn_is_not_done() -> None:
    """Nobody would want what it does."""
    go_on, done = threading.Event(), list[int]()

    async def hold() -> None:
        await run_sync("records", go_on.wait)

    with worker_threads(records=1):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hold)
            await trio.testing.wait_all_tasks_blocked()
            with trio.move_on_after(0.01):
                await run_sync("records", done.append, 1, abandon_on_cancel=True)
            go_on.set()
        await run_sync("records", done.append, 2)
    assert done == [2]


async def test_what_must_be_done_is_waited_for_by_the_cancelled() -> None:
    """A report that is being stored is not left half stored."""
    done = []
    with worker_threads(records=1), trio.CancelScope() as scope:
        scope.deadline = trio.current_time() + 0.01
        begun = threading.Event()

        def work() -> None:
            begun.set()
            done.append(threading.Event().wait(0.05))

        await run_sync("records", work)
    assert done == [False]


async def test_without_kept_threads_trio_has_some() -> None:
    """For a part of a supervisor that is used by itself."""
    assert await run_sync("records", lambda: 3) == 3
