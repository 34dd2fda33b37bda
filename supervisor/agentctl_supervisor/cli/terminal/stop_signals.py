"""Blocks the signals that end ``agentctl run`` while it cannot handle them yet."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Final

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Keep these signals pending in the block, until `release` or its end (sigprocmask(2))."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def release() -> None:
    """Deliver these signals from now on; pending ones arrive at once."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
