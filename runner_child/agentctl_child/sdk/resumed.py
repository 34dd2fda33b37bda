"""The facts that an agent gets about the earlier run that its own run continues."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agentctl_protocol import messages
from agentctl_protocol.messages import CallKind
from agentctl_protocol.values import open_value

PastOutcome: TypeAlias = Literal["ok", "error", "cancelled", "interrupted"]


@dataclass(frozen=True)
class PastCall:
    """A call of the earlier run.

    ``interrupted``: the call was cut off, so it is unknown if it had its effect. Check that before
    you make the call again. ``result`` is then a placeholder that keeps a chat history valid.
    """

    id: str
    kind: CallKind
    name: str
    outcome: PastOutcome
    args: Any
    result: Any
    error: str


@dataclass(frozen=True)
class Resumed:
    """The earlier run: its id, its result word, its last checkpoint, and its calls in order.

    ``calls_left_out``: the number of older calls that did not fit. ``text``: the end of the text
    that it streamed after its last whole message.
    """

    run: str
    result: str
    checkpoint: Any
    calls: tuple[PastCall, ...]
    calls_left_out: int
    text: str

    @property
    def interrupted(self) -> tuple[PastCall, ...]:
        """The calls whose effect is unknown."""
        return tuple(call for call in self.calls if call.outcome == "interrupted")


def opened(told: messages.Resumed) -> Resumed:
    """Return the supervisor's message with its values unpacked."""
    return Resumed(
        run=told.run,
        result=told.result,
        checkpoint=open_value(told.checkpoint, "checkpoint"),
        calls=tuple(
            PastCall(
                id=call.id,
                kind=call.kind,
                name=call.name,
                outcome=call.outcome,
                args=open_value(call.args, "arguments"),
                result=open_value(call.result, "result"),
                error=call.error,
            )
            for call in told.calls
        ),
        calls_left_out=told.calls_left_out,
        text=told.text,
    )
