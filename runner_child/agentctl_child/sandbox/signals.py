"""The signals of keepers: all are blocked; needed ones are read from a signalfd.

The spawner sets every disposition to its default and blocks every signal, once. Every process that
it forks inherits both. So a keeper can never be interrupted, and an agent only has to unblock. A
signal that reaches an agent before that stays pending and takes effect then: blocked signals are
never dropped, not even ignored ones (signal(7)).
"""

import os
import signal
from collections.abc import Iterable
from typing import Final

from agentctl_child.sandbox import syscalls

_SIGINFO_BYTES: Final = 128
_SIGSET_BYTES: Final = 128


def refuse_all() -> None:
    """Set default dispositions and block every signal.

    SIGKILL and SIGSTOP cannot be blocked.
    """
    everything = signal.valid_signals()
    signal.pthread_sigmask(signal.SIG_SETMASK, everything)
    for number in everything - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)


def accept_all() -> None:
    """Set the empty signal mask, as a program expects it."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def python_defaults() -> None:
    """Set the dispositions with which the interpreter starts a program of its own."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def open_signalfd(numbers: Iterable[int]) -> int:
    """Return a non-blocking descriptor that is readable when one of the blocked signals comes."""
    mask = bytearray(_SIGSET_BYTES)
    for number in numbers:
        mask[(number - 1) // 8] |= 1 << (number - 1) % 8
    return syscalls.signalfd(bytes(mask), os.O_NONBLOCK | os.O_CLOEXEC)


def read_signalfd(descriptor: int) -> set[int]:
    """Return the signals that came; several of one kind count as one."""
    came: set[int] = set()
    while True:
        try:
            data = os.read(descriptor, 16 * _SIGINFO_BYTES)
        except BlockingIOError:
            return came
        came.update(
            int.from_bytes(data[at : at + 4], "little")
            for at in range(0, len(data), _SIGINFO_BYTES)
        )
