"""Calls of models and tools; each of them asks the gate first."""

from types import TracebackType
from typing import Any, Final, Literal, Self

import msgspec

from agentctl_child.sdk import outgoing
from agentctl_child.sdk.async_waiter import async_waiter
from agentctl_child.sdk.cancellation import CANCELLATIONS, Interruption
from agentctl_child.sdk.connection import Connection, PendingAsk
from agentctl_child.sdk.waiting import ThreadWaiter, Waiter
from agentctl_protocol.messages import Ask, CallFinished, CallKind, Verdict
from agentctl_protocol.values import NIL

_MAX_ERROR: Final = 2000


class CallRefused(Exception):  # noqa: N818 - the public name says what happened
    """The supervisor does not permit this call; ``why`` names what refused it.

    This is an `Exception`: an agent may continue without the call.
    """

    def __init__(self, why: str, name: str = "") -> None:
        super().__init__(f"{name}: {why}" if name else why)
        self.why = why


class Call:
    """A single call, for ``with`` and for ``async with``.

    Entering asks the gate and raises `CallRefused` if the gate refuses. Leaving reports how the
    call ended. Set ``result`` inside the block to have it in the log.
    """

    __slots__ = ("_args", "_connection", "_interruption", "_result", "_used", "id", "kind", "name")

    def __init__(
        self,
        connection: Connection | None,
        interruption: Interruption,
        kind: CallKind,
        name: str,
        args: object,
    ) -> None:
        self._connection = connection
        self._interruption = interruption
        self._result: Any = None
        self._used = False
        self.kind = kind
        self.name = outgoing.label(name, f"the name of a {kind} call", empty=False)
        self.id = "" if connection is None else connection.next_call()
        self._args = outgoing.value(args, f"the argument of {self.name}")

    def __repr__(self) -> str:
        return f"<Call {self.id or '-'} {self.kind} {self.name}>"

    @property
    def result(self) -> Any:
        """The result of the call for the log: any value that JSON can represent."""
        return self._result

    @result.setter
    def result(self, given: Any) -> None:
        # Checked here, at the caller's line, and not when the block ends.
        outgoing.value(given, f"the result of {self.name}")
        self._result = given

    def __enter__(self) -> Self:
        connection = self._begin()
        if connection is None:
            return self
        waiter = ThreadWaiter()
        pending = None
        try:
            pending = self._ask(connection, waiter)
            waiter.wait()
            self._settle(pending.verdict)
        except BaseException:
            if pending is not None:
                connection.abandon(pending)
            raise
        return self

    async def __aenter__(self) -> Self:
        connection = self._begin()
        if connection is None:
            return self
        waiter = async_waiter()
        pending = None
        try:
            pending = self._ask(connection, waiter)
            await waiter.wait()
            self._settle(pending.verdict)
        except BaseException:
            if pending is not None:
                connection.abandon(pending)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if self._connection is None:
            return
        # Sent in this thread and at once, not by the flusher: after the block has ended, a kill
        # must not turn this call into one of unknown outcome.
        self._connection.say(self._finished(self._connection, error))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.__exit__(kind, error, where)

    def _begin(self) -> Connection | None:
        if self._used:
            raise RuntimeError(f"{self.name}: one call object makes one call")
        self._used = True
        connection = self._connection
        if connection is None or not self._interruption.token.is_cancelled:
            return connection
        if self._interruption.told:
            # The supervisor must learn that its stop is being ignored.
            connection.say(self._message(connection))
        if self._interruption.is_handled():
            raise CallRefused("the run is being stopped", self.name)
        raise self._interruption.cancelled()

    def _ask(self, connection: Connection, waiter: Waiter) -> PendingAsk:
        return connection.ask(self._message(connection), waiter)

    def _message(self, connection: Connection) -> Ask:
        args = outgoing.fitting(self._args, connection.limits)
        return Ask(call=self.id, kind=self.kind, name=self.name, args=args)

    def _settle(self, verdict: Verdict | None) -> None:
        if verdict is None:
            raise self._interruption.cancelled()
        if verdict.verdict == "refused":
            raise CallRefused(verdict.why or "refused", self.name)

    def _finished(self, connection: Connection, error: BaseException | None) -> CallFinished:
        outcome: Literal["ok", "error", "cancelled"] = "ok"
        text = ""
        if isinstance(error, tuple(CANCELLATIONS)):
            outcome = "cancelled"
        elif error is not None:
            outcome = "error"
            longest = min(_MAX_ERROR, connection.limits.piece)
            text = outgoing.shortened(one_line(error), "error", longest)
        return CallFinished(
            call=self.id, outcome=outcome, result=self._result_for(connection), error=text
        )

    def _result_for(self, connection: Connection) -> msgspec.Raw:
        if self._result is None:
            return NIL
        try:
            raw = outgoing.value(self._result, "the result")
        except ValueError as error:
            # The object was changed after it was set. That is no reason to fail the call now.
            raw = outgoing.value({"omitted": str(error)}, "the note")
        return outgoing.fitting(raw, connection.limits)


def one_line(error: BaseException) -> str:
    """Return *error* as ``Kind: text``, whatever its own ``__str__`` does."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # noqa: BLE001 - the agent's own __str__ may raise anything
        text = "(its text cannot be shown)"
    kind = type(error).__name__
    return f"{kind}: {text}" if text else kind
