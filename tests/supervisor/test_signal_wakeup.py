"""Waiting that a signal ends, and that leaves no trace in a program that has an event loop."""

import asyncio
import os
import select
import signal
import threading

from agentctl_supervisor.processes.signal_wakeup import poll


def _wakeup_fd() -> int:
    now = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(now)
    return now


def test_what_is_ready_is_told_and_nothing_is_left_behind() -> None:
    """Neither a descriptor nor a wakeup descriptor; years are no error."""
    read, write = os.pipe()
    source = select.poll()
    source.register(read, select.POLLIN)
    before = sorted(os.listdir("/proc/self/fd"))
    assert poll(source, 0) == []
    os.write(write, b"x")
    assert poll(source, 1e9) == poll(source) == [(read, select.POLLIN)]
    assert (sorted(os.listdir("/proc/self/fd")), _wakeup_fd()) == (before, -1)
    os.close(read)
    os.close(write)


def test_a_signal_ends_the_wait() -> None:
    """Its handler has run by then."""
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _frame: heard.append(number))
    try:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGUSR1))
        timer.start()
        assert poll(select.poll(), 20) == []
        timer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [signal.SIGUSR1]


def test_the_wakeup_descriptor_of_an_event_loop_stays_its_own() -> None:
    """Its signals are its own, too."""

    async def main() -> None:
        heard = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, heard.set)
        theirs = _wakeup_fd()
        assert theirs != -1
        poll(select.poll(), 0)
        assert _wakeup_fd() == theirs
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(heard.wait(), 20)
        loop.remove_signal_handler(signal.SIGUSR1)

    asyncio.run(main())


def test_a_thread_waits_without_any() -> None:
    """Only the main thread may set it, and no handler runs elsewhere."""
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(poll(select.poll(), 0.05)))
    thread.start()
    thread.join(20)
    assert found == [[]]
