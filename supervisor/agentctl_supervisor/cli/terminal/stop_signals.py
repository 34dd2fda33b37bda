"""The signals by which somebody wants ``agentctl run`` to end, held while nobody could obey."""

import contextlib
import signal
from collections.abc import Iterator
from typing import Final

STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def held() -> Iterator[None]:
    """They stay pending in the block, at the latest until its end (sigprocmask(2))."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def release() -> None:
    """From now on they are heeded; those that are pending come at once."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
