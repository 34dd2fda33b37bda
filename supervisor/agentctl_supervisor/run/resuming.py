"""Going on with a run that has ended: what its successor is told.

Work that a run was told of stays told until somebody has saved more of it: a run that went on
with another one, and ended before its own first checkpoint, hands on what it was given.
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
"""Of calls."""
_MARGIN: Final = 2048
"""Bytes of a frame for what is around the values, and for their lengths."""
MAX_TEXT: Final = 100_000
_MOST_EARLIER: Final = 64
"""Runs of a chain that are looked at; a pruned one is the end of it in any case."""
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


def chain_of(report: Report, report_of: Callable[[str], Report | None]) -> list[Report]:
    """*report*, and those before it whose work was not saved anew, the newest first.

    *report_of*: what is known of a run, None if it is gone.  A run that was refused has done
    nothing, and is left out.
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
    """*start* for the successor of the run of *report*: with what it is told of that one.

    *earlier*: those before it, as in `chain_of`: their checkpoint, and their calls before its
    own, which are called by the run's id and their own.

    All of it has to fit into one frame.  The checkpoint and the input go before the newest
    of the calls, and these before the end of the text.

    Raises:
        CannotResumeError: it is not over, or its checkpoint and the input are too long.
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
    # Of UTF-8 that was cut in the middle of a character, the rest of it is nothing.
    text = report.partial_text[-MAX_TEXT:].encode("utf-8", "replace")[-max(room, 0) :]
    text = text if room > 0 else b""
    told = msgspec.structs.replace(told, text=text.decode("utf-8", "ignore"))
    return msgspec.structs.replace(start, resumed=told)


def _calls_before(earlier: Sequence[Report]) -> Iterator[Call]:
    for report in reversed(earlier):
        for call in report.calls:
            # Each run counts its calls anew.
            yield msgspec.structs.replace(call, id=f"{report.id}/{call.id}")


def _size(start: Start) -> int:
    return len(msgspec.msgpack.encode(start))


def _newest(calls: Sequence[Call], room: int) -> tuple[tuple[PastCall, ...], int]:
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
        if size > room:
            break
        kept.append(past)
    return tuple(reversed(kept)), len(calls) - len(kept)


def _packed(value: Any) -> msgspec.Raw:
    try:
        raw = pack_value(value)
    except LocalProtocolError:  # of a damaged log, perhaps
        return _OMITTED
    return raw if len(memoryview(raw)) <= _MAX_VALUE_BYTES else _OMITTED
