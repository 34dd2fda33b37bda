"""The choice of how a task waits for the channel's thread, by the event loop that runs it."""

import sys
from types import ModuleType

from agentctl_child.sdk.waiting import AsyncWaiter


def async_waiter() -> AsyncWaiter:
    """Return a waiter for the event loop that runs in this thread.

    Raises:
        RuntimeError: no event loop runs in this thread.
    """
    trio = sys.modules.get("trio")
    if trio is not None and _runs_here(trio):
        from agentctl_child.sdk.trio_mode import EventWaiter

        return EventWaiter(trio)
    from agentctl_child.sdk.asyncio_mode import FutureWaiter

    return FutureWaiter()


def _runs_here(trio: ModuleType) -> bool:
    try:
        trio.lowlevel.current_task()
    except (RuntimeError, AttributeError):
        return False  # asyncio's thread, or trio is only half imported
    return True
