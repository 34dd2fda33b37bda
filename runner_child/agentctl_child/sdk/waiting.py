"""The ways in which a thread or task waits for the channel's thread.

Raw locks are used and not `threading.Event`. `Event` is Python code around a lock. A
`RunCancelled` that a signal raises in the middle of that code would leave the lock taken for ever.
A raw lock is either acquired or not.
"""

import _thread
from typing import Protocol


class Waiter(Protocol):
    """An object that can be woken from any thread, any number of times."""

    def wake(self) -> None:
        """End the wait, or the next one if none has begun. Never blocks, never raises."""
        ...


class AsyncWaiter(Waiter, Protocol):
    """A waiter of an event loop."""

    async def wait(self) -> None:
        """Suspend the calling task until `wake`."""
        ...


class ThreadWaiter:
    """Blocks one thread. In the main thread a signal handler may break the wait by raising."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def __repr__(self) -> str:
        return f"<ThreadWaiter {'waiting' if self._lock.locked() else 'woken'}>"

    def wake(self) -> None:
        """End the wait, or the next one if none has begun."""
        try:
            self._lock.release()
        except RuntimeError:
            pass  # woken already

    def wait(self, timeout: float = -1) -> bool:
        """Block until `wake`, or for *timeout* seconds; return False if the time was up."""
        return self._lock.acquire(True, timeout)
