"""Makes poll(2) return for a signal that arrives just before the call.

When a signal arrives, Python only notes it, and runs the handler later, between two bytecode
instructions.  A signal that arrives after the last instruction and before the system call does not
interrupt the call.  Then a Ctrl-C has no effect until the next one.
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
    """Make `poll` raise KeyboardInterrupt after a Ctrl-C, even if its exception was lost.

    If KeyboardInterrupt is raised in a callback, as the import system has them, Python prints it
    on stderr and drops it.  This works only if SIGINT has Python's default handler.  Call it in
    the main thread.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


def poll(source: select.poll, timeout_s: float | None = None) -> list[tuple[int, int]]:
    """Return what is ready of *source*; an empty list after *timeout_s*, a day, or a signal.

    In the main thread, a signal that has a handler ends the wait, even if it arrived just before.
    It works like plain poll(2) in other threads, where no handlers run, and if an event loop
    already has the wakeup descriptor (signal.set_wakeup_fd).
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
            # Check this after the wakeup descriptor is set: a later signal is written to it.
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
    """Restore the wakeup descriptor *theirs* and pass on the signals that came meanwhile."""
    signal.set_wakeup_fd(theirs)
    with contextlib.suppress(BlockingIOError):
        os.write(theirs, os.read(read, 4096))
