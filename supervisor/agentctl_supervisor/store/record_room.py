"""Shortens a supervisor's record to fit into the log: names and lists in it can be long.  Pure."""

from typing import Final

import msgspec

from agentctl_protocol.records import (
    MAX_BODY,
    ConditionsMet,
    End,
    SupervisorRecord,
    VerdictRecord,
)
from agentctl_protocol.values import NIL

_FEW: Final = 100

_encode: Final = msgspec.msgpack.Encoder().encode


def fitted(body: SupervisorRecord) -> tuple[SupervisorRecord, bytes]:
    """Return *body* and its bytes; if it is too long, its longest part is cut."""
    raw = _encode(body)
    if len(raw) <= MAX_BODY:
        return body, raw
    match body:
        case VerdictRecord():
            # The ask before it has the arguments.
            body = msgspec.structs.replace(body, args=NIL)
        case ConditionsMet(conditions=conditions):
            body = ConditionsMet(conditions[:_FEW])
        case End(survivors=survivors):
            # The number of survivors is in ``processes``.
            body = msgspec.structs.replace(body, survivors=survivors[:_FEW])
    return body, _encode(body)
