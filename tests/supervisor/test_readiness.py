"""Waiting for descriptors where epoll takes no more of them: the same promises, by poll(2)."""

import errno
import os
import select
from collections.abc import Iterator

import pytest
import trio
import trio.lowlevel
import trio.testing

from agentctl_protocol.vocabulary import EXIT_OWN_FAILURE
from agentctl_supervisor.errors import SpawnError
from agentctl_supervisor.event_loop import readiness


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    for fd in (reading, writing):
        try:
            os.close(fd)
        except OSError:
            pass


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel answers once a user has used up fs.epoll.max_user_watches."""

    async def no_space(_source: object) -> None:
        await trio.lowlevel.checkpoint()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(trio.lowlevel, "wait_readable", no_space)
    monkeypatch.setattr(trio.lowlevel, "wait_writable", no_space)


async def test_what_is_readable_wakes_all_who_wait(full: None, pipe: tuple[int, int]) -> None:
    """Any number of tasks, and none before there is something."""
    reading, writing = pipe
    woken = []

    async def wait(number: int) -> None:
        await readiness.wait_readable(reading)
        woken.append(number)

    with readiness.poll_thread():
        async with trio.open_nursery() as nursery:
            for number in range(3):
                nursery.start_soon(wait, number)
            await trio.testing.wait_all_tasks_blocked()
            assert not woken
            os.write(writing, b"x")
    assert sorted(woken) == [0, 1, 2]


async def test_what_is_writable_or_at_its_end_wakes(full: None, pipe: tuple[int, int]) -> None:
    """A pipe that has room, and one whose writer is gone."""
    reading, writing = pipe
    with readiness.poll_thread():
        await readiness.wait_writable(writing)
        os.close(writing)
        await readiness.wait_readable(reading)


async def test_who_is_cancelled_waits_no_more(full: None, pipe: tuple[int, int]) -> None:
    """And the thread does not keep the descriptor from being closed."""
    reading, writing = pipe
    with readiness.poll_thread():
        with trio.move_on_after(0.01) as scope:
            await readiness.wait_readable(reading)
        assert scope.cancelled_caught
        os.close(reading)
        os.set_blocking(writing, False)
        with trio.fail_after(10):
            while True:
                try:
                    os.write(writing, b"x")
                except BrokenPipeError:
                    break
                await trio.lowlevel.checkpoint()


async def test_closing_wakes_who_waits(full: None, pipe: tuple[int, int]) -> None:
    """With the error that trio has for it."""
    reading, _ = pipe
    with readiness.poll_thread():
        async with trio.open_nursery() as nursery:

            async def wait() -> None:
                with pytest.raises(trio.ClosedResourceError):
                    await readiness.wait_readable(reading)

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            readiness.notify_closing(reading)


async def test_without_the_thread_the_kernels_answer_is_told(
    full: None, pipe: tuple[int, int]
) -> None:
    """Nobody waits for ever for what cannot be waited for."""
    with pytest.raises(OSError, match="No space left"):
        await readiness.wait_readable(pipe[0])


async def test_several_may_wait_for_one_with_epoll_too(pipe: tuple[int, int]) -> None:
    """Where that is said, as for a pidfd."""
    reading, writing = pipe
    with readiness.poll_thread():
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(lambda: readiness.wait_readable(reading, alone=False))
            await trio.testing.wait_all_tasks_blocked()
            os.write(writing, b"x")


async def test_supervisors_of_one_loop_share_the_thread(full: None, pipe: tuple[int, int]) -> None:
    """The first one's end does not take it from the second."""
    first, second = readiness.poll_thread(), readiness.poll_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    os.write(pipe[1], b"x")
    await readiness.wait_readable(pipe[0])
    second.__exit__(None, None, None)


def test_without_a_watch_an_event_loop_is_refused_by_the_counters_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``agentctl run`` then leaves with 125 and says what is used up, and not where trio failed."""

    class Full:
        def register(self, _fd: int, _events: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def close(self) -> None:
            pass

    monkeypatch.setattr(select, "epoll", Full)
    with pytest.raises(SpawnError) as caught:
        readiness.check_epoll()
    assert "fs.epoll.max_user_watches" in caught.value.hint
    assert caught.value.exit_code == EXIT_OWN_FAILURE == 125
