"""Makes a write to a broken pipe raise an error instead of ending the process by SIGPIPE.

A run may close any pipe that we write to, at any time (signal(7)).  Python ignores SIGPIPE, but a
program that wants to end quietly in `... | head` may have restored its default action.
"""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def as_an_error() -> Iterator[None]:
    """Keep a broken pipe from ending this process during a block.

    The blocks of one process must end in the reverse order of their start.
    """
    if signal.getsignal(signal.SIGPIPE) is not signal.SIG_DFL:
        yield
    elif threading.current_thread() is threading.main_thread():
        # Ignored, not blocked: programs that are started meanwhile would inherit a blocked signal.
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
            # The kernel sends SIGPIPE to the thread that writes: here it may be pending now.
            signal.sigtimedwait({signal.SIGPIPE}, 0)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
