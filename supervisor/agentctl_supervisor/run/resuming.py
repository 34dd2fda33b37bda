"""Resuming a run that has ended: makes the message that tells its successor about it.

A run may resume another one and end before its own first checkpoint.  Then its successor is
told what the run itself was told, too: earlier work is passed on until a newer checkpoint is
saved.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from agentctl_protocol.errors import LocalProtocolError
from agentctl_protocol.framing import MAX_FRAME
from agentctl_protocol.messages import PastCall, Resumed, Start
from agentctl_protocol.report import Call, Report
from agentctl_protocol.values import NIL, pack_value
from agentctl_protocol.vocabulary import Result
from agentctl_supervisor.errors import AgentctlError

MAX_HISTORY_BYTES: Final = 400_000
"""The most bytes of calls."""
_MARGIN: Final = 2048
"""The bytes of a frame for the structure around the values, and for their lengths."""
MAX_TEXT: Final = 100_000
_MOST_EARLIER: Final = 64
"""The most runs of a chain that are read; a pruned run ends the chain in any case."""
_OMITTED: Final = pack_value("(omitted: too long; it is in the log)")
_MAX_VALUE_BYTES: Final = 50_000


class CannotResumeError(AgentctlError):
    """The run has nothing to resume, or is not over."""

    exit_code = 1


def check_resumable(report: Report) -> None:
    """Check that the run can be resumed.

    Raises:
        CannotResumeError: the run is live, never started, or has succeeded.
    """
    shown = report.name or report.id
    if not report.finished:
        raise CannotResumeError(f"{shown} is not over", f"agentctl stop {shown}")
    if report.result is Result.REFUSED:
        raise CannotResumeError(f"{shown} never started", f"agentctl rerun {shown}")
    if report.result is Result.SUCCEEDED:
        raise CannotResumeError(f"{shown} has succeeded", f"agentctl rerun {shown} runs it anew")


def chain_of(report: Report, report_of: Callable[[str], Report | None]) -> list[Report]:
    """Return *report* and the earlier reports back to the last checkpoint, the newest first.

    *report_of* returns the report of a run, or None if the run is gone.  A run that was refused
    has done nothing, and is left out.
    """
    return [one for one in _back_from(report, report_of) if one.result is not Result.REFUSED]


def _back_from(report: Report, report_of: Callable[[str], Report | None]) -> Iterator[Report]:
    for _ in range(_MOST_EARLIER):
        yield report
        if report.checkpoint is not None or report.resumes is None:
            return
        before = report_of(report.resumes)
        if before is None:
            return
        report = before


def told_of(start: Start, report: Report, earlier: Sequence[Report] = ()) -> Start:
    """Return *start* for the successor of the run of *report*, with what it is told of that run.

    *earlier*: the reports of the runs before it, as in `chain_of`.  The checkpoint is the newest
    one in the chain.  The calls of earlier runs come before those of the run itself; the id of
    such a call is ``RUN/CALL``.

    All of it has to fit into one frame.  The checkpoint and the input have priority over the
    newest calls, and these over the end of the text.

    Raises:
        CannotResumeError: the run is not over, or its checkpoint and the input are too long.
    """
    if not report.finished:
        check_resumable(report)
    saved = next((one.checkpoint for one in (report, *earlier) if one.checkpoint is not None), None)
    done = [*_calls_before(earlier), *report.calls]
    gone = sum(one.calls_left_out for one in (report, *earlier))
    told = Resumed(
        run=report.id,
        result=report.result or "",
        checkpoint=NIL if saved is None else pack_value(saved),
        calls_left_out=len(done) + gone,
    )
    room = MAX_FRAME - _MARGIN - _size(msgspec.structs.replace(start, resumed=told))
    if room < 0:
        raise CannotResumeError(
            f"the checkpoint of {report.name or report.id} and the input are {-room} bytes too"
            " long for one message",
            "give a shorter --input",
        )
    calls, left_out = _newest(done, min(MAX_HISTORY_BYTES, room))
    told = msgspec.structs.replace(told, calls=calls, calls_left_out=left_out + gone)
    room = MAX_FRAME - _MARGIN - _size(msgspec.structs.replace(start, resumed=told))
    # The cut may fall inside a UTF-8 character; its remaining bytes are dropped.
    text = report.partial_text[-MAX_TEXT:].encode("utf-8", "replace")[-max(room, 0) :]
    text = text if room > 0 else b""
    told = msgspec.structs.replace(told, text=text.decode("utf-8", "ignore"))
    return msgspec.structs.replace(start, resumed=told)


def _calls_before(earlier: Sequence[Report]) -> Iterator[Call]:
    for report in reversed(earlier):
        for call in report.calls:
            # Each run numbers its calls from the start.
            yield msgspec.structs.replace(call, id=f"{report.id}/{call.id}")


def _size(start: Start) -> int:
    return len(msgspec.msgpack.encode(start))


def _newest(calls: Sequence[Call], room: int) -> tuple[tuple[PastCall, ...], int]:
    """Return the last of *calls* that fit into *room* bytes, and how many are left out."""
    kept: list[PastCall] = []
    size = 0
    for call in reversed(calls):
        past = PastCall(
            id=call.id,
            kind=call.kind,
            name=call.name,
            # The run is over, so no call of it can be open.
            outcome="interrupted" if call.outcome == "open" else call.outcome,
            args=_packed(call.args),
            result=_packed(call.result),
            error=call.error,
        )
        size += len(msgspec.msgpack.encode(past))
        if size > room:
            break
        kept.append(past)
    return tuple(reversed(kept)), len(calls) - len(kept)


def _packed(value: Any) -> msgspec.Raw:
    try:
        raw = pack_value(value)
    except LocalProtocolError:  # perhaps from a damaged log
        return _OMITTED
    return raw if len(memoryview(raw)) <= _MAX_VALUE_BYTES else _OMITTED
