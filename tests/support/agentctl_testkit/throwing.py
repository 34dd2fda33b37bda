"""Lets a task of trio fail at one of its waits, as if what it waits for had raised.

`Throwing` is an instrument: it looks at tasks when they are spawned, and steps those that it
is to fail by itself.  The wait is given up properly first, so that only the task has failed.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

import trio


class InjectedError(Exception):
    """What the task raises."""


class Throwing(trio.abc.Instrument):
    """Makes the first task that is called *name* raise at its wait number *at*.

    ``thrown``: whether it has; ``reached``: whether it came so far at all.
    """

    def __init__(self, name: str, at: int) -> None:
        self.thrown = self.reached = False
        self._name: Final = name
        self._at: Final = at
        self._is_used = False

    def __repr__(self) -> str:
        return f"<Throwing {self._name} at {self._at}>"

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        """See `trio.abc.Instrument`."""
        if not self._is_used and task.name.endswith(self._name):
            self._is_used = True
            task.coro = _Stepped(task.coro, self._at, self)  # type: ignore[assignment]


class _Stepped:
    """A coroutine, as far as trio's scheduler uses one."""

    def __init__(self, coro: Coroutine[Any, Any, Any], at: int, owner: Throwing) -> None:
        self._coro = coro
        self._left = at
        self._owner = owner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coro, name)

    def send(self, value: object) -> Any:
        return self._step(self._coro.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._coro.throw, *error)

    def _step(self, how: Callable[..., Any], *arguments: Any) -> Any:
        trap = how(*arguments)
        self._left -= 1
        if self._left:
            return trap
        self._owner.reached = True
        if not _given_up(trap):
            return trap
        self._owner.thrown = True
        return self._coro.throw(InjectedError("at a wait"))


def _given_up(trap: Any) -> bool:
    """Whether nobody will wake the task up for *trap* any more."""
    abort = getattr(trap, "abort_func", None)
    # Where trio itself never raises: a shielded checkpoint, and a nursery's wait for its tasks.
    if abort is None or abort.__qualname__.startswith("Nursery."):
        return False
    return bool(abort(lambda: None) is trio.lowlevel.Abort.SUCCEEDED)
