"""What an agent learns of the run that its own goes on with."""

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from agentctl_protocol import messages
from agentctl_protocol.messages import CallKind
from agentctl_protocol.values import open_value

PastOutcome: TypeAlias = Literal["ok", "error", "cancelled", "interrupted"]


@dataclass(frozen=True)
class PastCall:
    """A call of the earlier run.

    ``interrupted``: it was cut off, so whether it had its effect is unknown.  Look
    before you make it again; ``result`` is a stand-in that keeps a chat history valid.
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
    """The earlier run: its id, what became of it, its last checkpoint, its calls in order.

    ``calls_left_out``: how many older calls there was no room for.  ``text``: the end of
    what it streamed after its last whole message.
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
    """What the supervisor told, with its values unpacked."""
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
