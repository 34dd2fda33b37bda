"""Makes a record of ours fit into the log: what a run did, or is called, can be long.  Pure."""

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
    """*body* and its bytes, without its longest part where it would be too long for a record."""
    raw = _encode(body)
    if len(raw) <= MAX_BODY:
        return body, raw
    match body:
        case VerdictRecord():
            # They stand in the ask before it.
            body = msgspec.structs.replace(body, args=NIL)
        case ConditionsMet(conditions=conditions):
            body = ConditionsMet(conditions[:_FEW])
        case End(survivors=survivors):
            # Their number is in ``processes``.
            body = msgspec.structs.replace(body, survivors=survivors[:_FEW])
    return body, _encode(body)
