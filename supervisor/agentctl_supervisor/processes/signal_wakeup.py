"""Lets poll(2) see a signal that comes just before it.

Python only notes a signal when it arrives, and acts on it between two instructions: one that
comes after the last of them and before the system call interrupts nothing, and a Ctrl-C is
forgotten until the next one.
"""

import contextlib
import os
import select
import signal
import threading
from types import FrameType
from typing import NoReturn

from agentctl_supervisor.processes.process_tree import LONGEST_POLL_S

_interrupted = False


def remember_interrupts() -> None:
    """Have `poll` raise KeyboardInterrupt once a Ctrl-C has come, whatever became of it.

    Raised in a callback, as the machinery of imports has them, it is told on stderr and dropped.
    For a program whose Ctrl-C is Python's own; call it in the main thread.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


def poll(source: select.poll, timeout_s: float | None = None) -> list[tuple[int, int]]:
    """What of *source* is ready; nothing after *timeout_s*, at the latest after a day, or a signal.

    In the main thread a signal that has a handler ends the wait whenever it came.  Elsewhere,
    where no handlers run, and where somebody's event loop has the wakeup descriptor
    (signal.set_wakeup_fd), it is as poll(2) is.
    """
    timeout_ms = None if timeout_s is None else min(max(timeout_s, 0.0), LONGEST_POLL_S) * 1000
    if threading.current_thread() is not threading.main_thread():
        return source.poll(timeout_ms)
    read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        theirs = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        if theirs != -1:
            _give_back(theirs, read)
            return source.poll(timeout_ms)
        try:
            source.register(read, select.POLLIN)
            # After the wakeup descriptor: what comes from here on is in there.
            if _interrupted:
                raise KeyboardInterrupt
            return [one for one in source.poll(timeout_ms) if one[0] != read]
        finally:
            signal.set_wakeup_fd(-1)
            source.unregister(read)
    finally:
        os.close(read)
        os.close(write)


def _give_back(theirs: int, read: int) -> None:
    """Let them have their descriptor again, and the signals that have come meanwhile."""
    signal.set_wakeup_fd(theirs)
    with contextlib.suppress(BlockingIOError):
        os.write(theirs, os.read(read, 4096))
