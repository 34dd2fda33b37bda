"""Writing to a reader that is gone is an error and no death: SIGPIPE, signal(7).

A run may close any pipe that we write to, when it likes.  Python ignores the signal, but a
program that wants to end quietly in `... | head` may have given it its default action again.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def as_an_error() -> Iterator[None]:
    """For the length of a block, a broken pipe does not end this process.

    Blocks in one process end in the reverse order of their beginning.
    """
    if signal.getsignal(signal.SIGPIPE) is not signal.SIG_DFL:
        yield
    elif threading.current_thread() is threading.main_thread():
        # Not blocked, which the programs that are started meanwhile would inherit.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        try:
            yield
        finally:
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    else:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        try:
            yield
        finally:
            # It is sent to the thread that writes, and is pending if one came.
            signal.sigtimedwait({signal.SIGPIPE}, 0)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
