"""The agent's process, from its first Python instruction to its exit.

The order of the steps matters:

- The channel's thread starts before the agent's code is imported, so that a stop during a slow
  import is heard.
- Our own modules are imported before the agent's paths are added, so that an agent's own
  ``protocol.py`` is not imported instead of ours.
- The outcome is sent before the cleanup, so that a failing cleanup cannot lose it.
"""

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from agentctl_child.sdk import outcome, surroundings, target
from agentctl_child.sdk.bootstrap import BOOTSTRAP
from agentctl_child.sdk.calls import one_line
from agentctl_child.sdk.connection import EXIT_UNSUPERVISED, Connection
from agentctl_child.sdk.mode import Mode, SyncMode
from agentctl_child.sdk.mode_choice import mode_for, mode_for_value
from agentctl_child.sdk.outcome import Outcome
from agentctl_child.sdk.outgoing import MAX_LABEL, shortened
from agentctl_child.sdk.supervision import supervision
from agentctl_protocol.errors import LocalProtocolError
from agentctl_protocol.messages import ErrorMessage, Ready
from agentctl_protocol.os_names import to_native

__all__ = ["BOOTSTRAP", "main"]

_T = TypeVar("_T")


def main(channel: tuple[int, int]) -> NoReturn:
    """Greet the supervisor on *channel*, run the function that it names, and exit.

    *channel* is a pair of descriptors: one to read from, one to write to. The exit status is 0 for
    a value or a stop, 1 for an error, and 70 if the supervisor is gone. If the function raised
    `SystemExit`, the exit status is the status of that exception.
    """
    status = EXIT_UNSUPERVISED
    agent: _Agent | None = None
    try:
        agent = _Agent(channel)
        status = agent.live()
    except BaseException as error:  # noqa: BLE001 - ours: the agent's exceptions are caught earlier
        sys.stderr.write(f"agentctl: internal error: {one_line(error)}\n")
        if agent is not None:
            agent.give_up(error)
    finally:
        # In every case: no frame above this one may run in an agent's process.
        os._exit(status)


class _Agent:
    """The life of one agent."""

    def __init__(self, channel: tuple[int, int]) -> None:
        surroundings.prepare_process()
        self._interruption = supervision.interruption
        # Everything is shielded except the agent's own code.
        self._interruption.shield.depth = 1
        self._interruption.install()
        self._connection = Connection(channel, self._interruption)
        self._mode: Mode = SyncMode(self._interruption)

    def live(self) -> int:
        """Run from hello to bye and return the exit status."""
        self._connection.greet()
        start = self._connection.wait_for_start()
        supervision.attach(self._connection, start)
        # This is the last of our own imports. It takes 50 ms unless an idle spawner has done it
        # already. It comes only here, so that no other run waits for it, and before the agent's
        # paths are added, so that Python's own asyncio is imported.
        import agentctl_child.sdk.asyncio_mode  # noqa: F401

        ended = self._run(to_native(start.target), tuple(map(to_native, start.paths)))
        if supervision.connection() is None:
            return _end_of_fork(ended)
        if ended.message is not None:
            self._connection.say(ended.message)
        self._mode.close()
        surroundings.flush_standard_streams()
        self._connection.leave(cancelled=ended.message is None)
        return ended.exit_status

    def give_up(self, error: BaseException) -> None:
        """Report an internal error of ours to the supervisor, if it can still be reported."""
        with contextlib.suppress(LocalProtocolError):  # before hello, or after the outcome
            text = shortened(one_line(error), "text", 1000)
            kind = type(error).__name__[:MAX_LABEL]
            self._connection.say(ErrorMessage(kind=kind, text=text, loading=True))
            self._connection.leave(cancelled=False)

    def _run(self, name: str, paths: tuple[str, ...]) -> Outcome:
        surroundings.open_standard_streams()
        if self._is_stopped():
            return outcome.CANCELLED
        failure = self._exposed(surroundings.add_site_packages, [])
        if failure is not None:
            return self._judge(failure, loading=True)
        surroundings.prepare_python(name, paths)
        loaded: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        failure = self._exposed(lambda: _load(name), loaded)
        if not loaded:
            return self._judge(failure, loading=True)
        if self._is_stopped() or supervision.connection() is None:
            return outcome.CANCELLED
        function, arguments = loaded[0]
        try:
            self._use(mode_for(function, self._interruption))
        except target.TargetError as error:
            return self._judge(error, loading=True)
        self._connection.say(Ready())
        # Checked after the mode is in place: a stop either is found here or finds the mode's
        # interrupt.
        if self._is_stopped():
            return outcome.CANCELLED
        returned: list[object] = []
        failure = self._exposed(lambda: self._call(function, arguments), returned)
        if not returned:
            return self._judge(failure, loading=False)
        return outcome.of_value(returned[0], self._connection.limits)

    def _call(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> object:
        value = self._mode.call(function, arguments)
        mode = mode_for_value(value, self._interruption)
        if mode is not None:  # a decorator had hidden what kind of function it is
            self._use(mode)
            value = mode.call(lambda: value, ())
        return value

    def _use(self, mode: Mode) -> None:
        self._mode = mode
        self._connection.loop_turns = mode.loop_turns
        self._connection.interrupt = mode.interrupt

    def _judge(self, failure: BaseException | None, *, loading: bool) -> Outcome:
        if failure is None:
            return outcome.CANCELLED
        return outcome.of_exception(
            failure, self._connection.limits, is_stop=self._is_stopped(), loading=loading
        )

    def _is_stopped(self) -> bool:
        return self._interruption.token.is_cancelled

    def _exposed(self, call: Callable[[], _T], result: list[_T]) -> BaseException | None:
        """Call the agent's code unshielded; store its value in *result* or return its exception.

        ``append`` is a single step for the interpreter. A value that was returned is therefore
        kept even if the stop comes in the same moment.
        """
        shield = self._interruption.shield
        try:
            shield.depth = 0
            if self._interruption.held_off_is_due():
                raise self._interruption.cancelled()
            result.append(call())
        except BaseException as error:  # noqa: BLE001 - any exception is the outcome
            shield.depth = 1
            return error
        shield.depth = 1
        return None


def _load(name: str) -> tuple[Callable[..., object], tuple[Any, ...]]:
    function = target.load(name)
    return function, target.arguments_for(function, supervision.input)


def _end_of_fork(ended: Outcome) -> int:
    """End a fork of the agent that returned through our frames; return its exit status.

    It ends as Python would end it.
    """
    if isinstance(ended.message, ErrorMessage) and ended.message.traceback:
        sys.stderr.write(ended.message.traceback)
    surroundings.flush_standard_streams()
    return ended.exit_status
