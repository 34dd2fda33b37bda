"""The ways in which a stop reaches the agent's code.

`CancelToken` holds the fact that the run is being stopped; any code may read it. `Interruption`
brings the stop to code that does not read the token. It sends a signal to the main thread, and the
signal's handler raises `RunCancelled`. That breaks `time.sleep`, a blocking `recv`, a lock, a
`waitpid`.

Two rules:

* The handler raises at most once. If the agent swallows the exception, its next call into the SDK
  raises it again. It is never raised at any other place.
* The handler never raises inside a critical section (`Interruption.shield`): a half-written frame
  would tell the supervisor something wrong.
"""

import _thread
import itertools
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from types import FrameType, TracebackType
from typing import Final, cast

import agentctl_child
from agentctl_child.sdk.waiting import ThreadWaiter

#: Below SIGRTMAX, which debuggers use, and far from SIGRTMIN, where other runtimes begin.
CANCEL_SIGNAL: Final = int(signal.SIGRTMAX) - 2

#: Time that an event loop has to cancel its task before the main thread is interrupted.
LOOP_S: Final = 0.2

#: A longer chain of exception contexts is not searched.
_MAX_CHAIN: Final = 100


_get_ident = _thread.get_ident


class RunCancelled(BaseException):
    """The run is being stopped. Save what must not be lost, and let this exception pass.

    It is not an `Exception`, so that ``except Exception`` around a tool does not swallow it.
    """


#: Exceptions that mean "cut short"; the module of each mode adds those of its library.
CANCELLATIONS: list[type[BaseException]] = [RunCancelled, GeneratorExit]

#: Folders whose frames are not the agent's; the module of each mode adds that of its library.
MACHINERY: list[str] = [os.path.dirname(os.path.abspath(agentctl_child.__file__)) + os.sep]

#: True if this thread or task has got its `RunCancelled`; every task has its own context.
_told: ContextVar[bool] = ContextVar("agentctl_told", default=False)


class CancelToken:
    """Tells if the run is being stopped, for threads and loops that check it themselves."""

    def __init__(self) -> None:
        self._cancelled = False
        self._reason = ""
        self._detail = ""
        self._deadline = float("inf")
        self._waiters: set[ThreadWaiter] = set()
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._keys = itertools.count()

    def __repr__(self) -> str:
        return f"<CancelToken {'cancelled: ' + self._reason if self._cancelled else 'open'}>"

    @property
    def is_cancelled(self) -> bool:
        """True if the stop has been requested. It never becomes False again."""
        return self._cancelled

    @property
    def reason(self) -> str:
        """The reason code of the stop, such as ``user`` or ``time``; empty before the stop."""
        return self._reason

    @property
    def detail(self) -> str:
        """A sentence for people; may be empty."""
        return self._detail

    @property
    def seconds_left(self) -> float:
        """The seconds until SIGTERM follows; infinite before the stop."""
        return max(0.0, self._deadline - time.monotonic())

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the stop, or for *timeout* seconds; return True if it has been requested."""
        waiter = ThreadWaiter()
        self._waiters.add(waiter)
        try:
            if not self._cancelled:
                waiter.wait(-1 if timeout is None else max(0.0, timeout))
        finally:
            self._waiters.discard(waiter)
        return self._cancelled

    def add_callback(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call *callback* once at the stop, or at once if the stop has come; return its removal.

        The callback runs in a thread of the SDK and should be quick. The main thread is
        interrupted when all callbacks have returned, or 0.1 s after the stop at the latest.
        """
        key = next(self._keys)
        self._callbacks[key] = callback
        if self._cancelled and self._callbacks.pop(key, None) is not None:
            callback()

        def remove() -> None:
            self._callbacks.pop(key, None)

        return remove

    def cancel(self, reason: str, detail: str = "", within_s: float = float("inf")) -> bool:
        """Record the stop and wake all waiters; return False if it was recorded before.

        A later call may only shorten the time that is left.
        """
        self._deadline = min(self._deadline, time.monotonic() + within_s)
        if self._cancelled:
            return False
        self._reason, self._detail = reason, detail
        self._cancelled = True
        for waiter in list(self._waiters):
            waiter.wake()
        return True

    def run_callbacks(self, failed: Callable[[Exception], None]) -> None:
        """Call each waiting callback once; pass the exception of a failing one to *failed*."""
        while self._callbacks:
            for key in list(self._callbacks):
                callback = self._callbacks.pop(key, None)
                if callback is None:
                    continue
                try:
                    callback()
                except Exception as error:  # noqa: BLE001 - the other callbacks must be called too
                    failed(error)

    @property
    def has_callbacks(self) -> bool:
        """True if callbacks wait to be called."""
        return bool(self._callbacks)


class Interruption:
    """Raises `RunCancelled` in the agent's code: by signal, and at its calls into the SDK."""

    def __init__(self, token: CancelToken) -> None:
        self.token = token
        self.shield = _Shield(self)
        #: Returns True if the running task was told by its own library. Set by a mode.
        self.task_was_told: Callable[[], bool] = bool
        #: Returns True if the code that a signal has interrupted tolerates an exception. Set by a
        #: mode.
        self.may_raise_here: Callable[[], bool] = _always
        #: The thread that signals interrupt.
        self.main = threading.main_thread().ident
        self._delivered = False
        self._heard = ThreadWaiter()
        self._raised: weakref.ref[RunCancelled] | None = None
        self._tells_of_unraisable = False

    def __repr__(self) -> str:
        return f"<Interruption delivered={self._delivered} {self.shield!r}>"

    def install(self) -> None:
        """Handle `CANCEL_SIGNAL`.

        Only the main thread can do so; in another thread this does nothing.
        """
        self.main = threading.main_thread().ident
        if _get_ident() == self.main:
            signal.signal(CANCEL_SIGNAL, self._on_signal)
            sys.unraisablehook = partial(self._on_unraisable, sys.unraisablehook)

    def interrupt_main(self) -> None:
        """Break whatever the main thread waits for. Called in another thread."""
        if self._signal_main():
            _thread.start_new_thread(self._insist, ())

    def _insist(self) -> None:
        """Send the signal again until its handler has run.

        The interpreter checks for signals and then makes its system call. A signal that arrives in
        between is recorded but does not break the call. This was seen once in a hundred stops. The
        cause is that a thread that is about to sleep releases the interpreter lock, and this wakes
        the thread that sends the signal.
        """
        pause = 0.01
        while not self._heard.wait(pause) and self._signal_main():
            pause = min(2 * pause, 0.5)

    def _signal_main(self) -> bool:
        if self.main is None or signal.getsignal(CANCEL_SIGNAL) != self._on_signal:
            return False  # the agent has our signal; unhandled, it would kill
        try:
            signal.pthread_kill(self.main, CANCEL_SIGNAL)
        except OSError:
            # A sandbox may forbid it. interrupt_main runs the handler, but breaks no wait.
            _thread.interrupt_main(cast(signal.Signals, CANCEL_SIGNAL))
        return True

    def mark_delivered(self) -> None:
        """Record that the agent's code has learned of the stop in another way.

        The signal must not raise any more.
        """
        self._delivered = True
        self._heard.wake()

    @property
    def told(self) -> bool:
        """True if the calling thread or task has got its `RunCancelled` before."""
        return _told.get() or self.is_handled() or self.task_was_told()

    def is_handled(self) -> bool:
        """Return True if the caller is inside an ``except`` or ``finally`` of the cancellation."""
        error = sys.exc_info()[1]
        kinds = tuple(CANCELLATIONS)
        for _ in range(_MAX_CHAIN):
            if error is None:
                return False
            if isinstance(error, kinds):
                return True
            error = error.__context__
        return False

    def check(self) -> None:
        """Raise `RunCancelled` if the run is being stopped, unless the caller is handling that."""
        if self.token.is_cancelled and not self.is_handled():
            raise self.cancelled()

    def cancelled(self) -> RunCancelled:
        """Return the exception for the caller to raise; the caller counts as told from now on."""
        _told.set(True)
        if _get_ident() == self.main:
            self.mark_delivered()
        return RunCancelled(self.token.detail or self.token.reason)

    def _on_signal(self, _signum: int, _frame: FrameType | None) -> None:
        if self._delivered or not self.token.is_cancelled:
            self._heard.wake()
            return
        if self.shield.depth:
            self._heard.wake()
            self.shield.wanted = True
            return
        if self.may_raise_here() and not self._tells_of_unraisable:
            self._heard.wake()
            error = self.cancelled()
            self._raised = weakref.ref(error)
            raise error
        # Not marked as heard: the signal is sent again.

    def _on_unraisable(
        self, tell: Callable[["sys.UnraisableHookArgs"], object], args: "sys.UnraisableHookArgs"
    ) -> None:
        """Interrupt once more if the interpreter dropped our exception.

        The interpreter drops exceptions in callbacks that it calls itself: around os.fork (logging
        has some), of weak references, and in ``__del__``.
        """
        self._tells_of_unraisable = True
        try:
            ours = None if self._raised is None else self._raised()
            if ours is None or args.exc_value is not ours:
                tell(args)
                return
            _told.set(False)
            self._delivered = False
            self._heard = ThreadWaiter()
            _thread.start_new_thread(self._insist, ())
        finally:
            self._tells_of_unraisable = False

    def held_off_is_due(self) -> bool:
        """Return True if a signal came inside the shield and the code was not told since."""
        return self.shield.wanted and not self._delivered


def _always() -> bool:
    return True


class _Shield:
    """Delays the signal's exception in the main thread while it is entered; may be nested."""

    def __init__(self, interruption: Interruption) -> None:
        self.depth = 0
        self.wanted = False
        self._interruption = interruption

    def __repr__(self) -> str:
        return f"<Shield depth={self.depth} wanted={self.wanted}>"

    def __enter__(self) -> None:
        if _get_ident() == self._interruption.main:
            self.depth += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if _get_ident() != self._interruption.main:
            return
        self.depth -= 1
        # A signal that comes after this line finds no shield and raises by itself.
        if not self.depth and self._interruption.held_off_is_due():
            raise self._interruption.cancelled()
