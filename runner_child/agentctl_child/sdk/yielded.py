"""The conversion of a generator's yielded values to events.

A ``str`` is a piece of streamed text. Any other value that JSON can represent is a message that
holds its JSON. None is no event; it is only a place where a stop can reach the generator.
"""

import msgspec

from agentctl_child.sdk import outgoing
from agentctl_child.sdk.agent_run import run
from agentctl_child.sdk.cancellation import Interruption, RunCancelled
from agentctl_protocol.values import open_value


def report(value: object, interruption: Interruption) -> None:
    """Report *value*, even while the run is being stopped.

    Raises:
        ValueError: it is not JSON, or too long for a message.
        RunCancelled: the run is being stopped.
    """
    if interruption.token.is_cancelled:
        try:
            raise interruption.cancelled()
        except RunCancelled:
            _report(value)  # allowed for code that handles the stop
            raise
    _report(value)


def _report(value: object) -> None:
    if isinstance(value, str):
        run.emit_text(value)
    elif value is not None:
        plain = open_value(outgoing.value(value, "the yielded value"))
        run.emit_message(msgspec.json.encode(plain).decode())
