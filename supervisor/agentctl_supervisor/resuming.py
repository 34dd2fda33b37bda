"""Going on with a run that has ended: what its successor is told.  Pure."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from agentctl_protocol.errors import LocalProtocolError
from agentctl_protocol.messages import PastCall, Resumed
from agentctl_protocol.report import Call, Report
from agentctl_protocol.values import NIL, pack_value
from agentctl_protocol.vocabulary import Result
from agentctl_supervisor.errors import AgentctlError

MAX_HISTORY_BYTES: Final = 400_000
"""Of calls and text.  With a checkpoint and an input it has to fit into one frame."""
MAX_TEXT: Final = 100_000
_OMITTED: Final = pack_value("(omitted: too long; it is in the log)")
_MAX_VALUE_BYTES: Final = 50_000


class CannotResumeError(AgentctlError):
    """The run has nothing to go on with, or goes on itself."""

    exit_code = 1


def check_resumable(report: Report) -> None:
    """Check that there is something to go on with.

    Raises:
        CannotResumeError: the run lives, never started, or has done its work.
    """
    shown = report.name or report.id
    if not report.finished:
        raise CannotResumeError(f"{shown} is not over", f"agentctl stop {shown}")
    if report.result is Result.REFUSED:
        raise CannotResumeError(f"{shown} never started", f"agentctl rerun {shown}")
    if report.result is Result.SUCCEEDED:
        raise CannotResumeError(f"{shown} has succeeded", f"agentctl rerun {shown} runs it anew")


def resumed_of(report: Report) -> Resumed:
    """What the successor of the run of *report* is told, bounded in size."""
    calls, left_out = _newest(report.calls)
    return Resumed(
        run=report.id,
        result=report.result or "",
        checkpoint=NIL if report.checkpoint is None else pack_value(report.checkpoint),
        calls=calls,
        calls_left_out=left_out + report.calls_left_out,
        text=report.partial_text[-MAX_TEXT:],
    )


def _newest(calls: Sequence[Call]) -> tuple[tuple[PastCall, ...], int]:
    """The last of *calls*, as many as there is room for, and how many are left out."""
    kept: list[PastCall] = []
    size = 0
    for call in reversed(calls):
        past = PastCall(
            id=call.id,
            kind=call.kind,
            name=call.name,
            # The run is over: nothing of it is open.
            outcome="interrupted" if call.outcome == "open" else call.outcome,
            args=_packed(call.args),
            result=_packed(call.result),
            error=call.error,
        )
        size += len(msgspec.msgpack.encode(past))
        if size > MAX_HISTORY_BYTES:
            break
        kept.append(past)
    return tuple(reversed(kept)), len(calls) - len(kept)


def _packed(value: Any) -> msgspec.Raw:
    try:
        raw = pack_value(value)
    except LocalProtocolError:  # of a damaged log, perhaps
        return _OMITTED
    return raw if len(memoryview(raw)) <= _MAX_VALUE_BYTES else _OMITTED
