"""Lets poll(2) see a signal that comes just before it.

Python only notes a signal when it arrives, and acts on it between two instructions: one that
comes after the last of them and before the system call interrupts nothing, and a Ctrl-C is
forgotten until the next one.
"""

import os
import signal
import threading
from typing import Self


class SignalWakeup:
    """Readable, as a descriptor, after each signal for which Python has a handler.

    A context manager.  Outside the main thread, which is the only one that handlers run in,
    and where somebody's event loop has the wakeup descriptor (signal.set_wakeup_fd), it never
    becomes readable.
    """

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._armed = False

    def __repr__(self) -> str:
        return f"<SignalWakeup {self._read}{'' if self._armed else ', not in force'}>"

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
            if before == -1:
                self._armed = True
            else:
                signal.set_wakeup_fd(before)
        return self

    def __exit__(self, *_: object) -> None:
        if self._armed:
            signal.set_wakeup_fd(-1)
        os.close(self._read)
        os.close(self._write)

    def fileno(self) -> int:
        """The descriptor to be polled."""
        return self._read

    def clear(self) -> None:
        """Forget the signals so far; their handlers have run before this does."""
        try:
            os.read(self._read, 1 << 16)
        except BlockingIOError:
            pass
