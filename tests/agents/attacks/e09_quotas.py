"""Take timers, queued signals and watches until others have none: there is an end for a run.

They are counted for the user, so that a run of that user's could leave nothing for its programs.
"""

import ctypes
import errno
import os
import signal
from collections.abc import Callable

from attempt import Blocked, attempt, checked, libc, syscall

_TIMER_CREATE = 222
_BOUND = 4096


def _more_than_the_bound(take: Callable[[], object]) -> Callable[[], str]:
    def taken() -> str:
        count = 0
        try:
            for _ in range(_BOUND + 200):
                take()
                count += 1
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            raise Blocked(f"{count} and no more") from None
        return f"{count} of them"

    return taken


def _timer() -> None:
    number = ctypes.c_int()
    syscall(_TIMER_CREATE, 1, None, ctypes.byref(number))


def _signal() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGRTMIN})
    checked(libc.sigqueue(os.getpid(), int(signal.SIGRTMIN), None))


attempt({"timers": _more_than_the_bound(_timer), "signals": _more_than_the_bound(_signal)})
