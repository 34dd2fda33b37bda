"""The end of the agent's function, as a message and an exit status. Pure decisions."""

import traceback
from types import TracebackType
from typing import Any, Final

import msgspec

from agentctl_child.sdk import outgoing
from agentctl_child.sdk.calls import one_line
from agentctl_child.sdk.cancellation import CANCELLATIONS, MACHINERY
from agentctl_child.sdk.target import TargetError
from agentctl_protocol.messages import ErrorMessage, ResultMessage

MAX_TEXT: Final = 2000
MAX_TRACEBACK: Final = 1 << 16


class Outcome(msgspec.Struct, frozen=True):
    """The message for the supervisor and the exit status.

    A message of None means only that the agent ends as it was asked to.
    """

    message: ResultMessage | ErrorMessage | None
    exit_status: int


CANCELLED: Final = Outcome(None, 0)


def of_value(value: Any, limits: outgoing.Limits) -> Outcome:
    """Return the outcome of a function that returned *value*."""
    try:
        raw = outgoing.value(value, "the returned value")
    except ValueError as error:
        return _failure("TypeError", str(error), limits)
    size = len(bytes(raw))
    if size > limits.payload:
        return _failure(
            "ValueError",
            f"the returned value has {size} bytes: at most {limits.payload} fit in a message;"
            " write it to a file and name that by run.artifact",
            limits,
        )
    return Outcome(ResultMessage(value=raw), 0)


def of_exception(
    error: BaseException, limits: outgoing.Limits, *, is_stop: bool, loading: bool
) -> Outcome:
    """Return the outcome of a function, or of its module, that raised *error*."""
    if is_stop and is_cancellation(error):
        return CANCELLED
    if isinstance(error, TargetError):
        return _failure(error.kind, str(error), limits, loading=True)
    if isinstance(error, SystemExit) and not loading:
        return _of_system_exit(error, limits)
    kind = type(error).__name__
    text = one_line(error).removeprefix(kind).removeprefix(": ")
    longest = min(MAX_TRACEBACK, limits.piece)
    return _failure(kind, text, limits, loading=loading, shown=_traceback_of(error, longest))


def is_cancellation(error: BaseException) -> bool:
    """Return True if *error*, or every member of its group, means "cut short"."""
    kinds = tuple(CANCELLATIONS)
    if isinstance(error, BaseExceptionGroup):
        return error.split(kinds)[1] is None
    return isinstance(error, kinds)


def _of_system_exit(error: SystemExit, limits: outgoing.Limits) -> Outcome:
    if error.code is None or error.code == 0:
        return Outcome(ResultMessage(), 0)
    status = error.code & 0xFF if isinstance(error.code, int) else 1
    return _failure("SystemExit", str(error.code), limits, exit_status=status or 1)


def _failure(
    kind: str,
    text: str,
    limits: outgoing.Limits,
    *,
    loading: bool = False,
    shown: str = "",
    exit_status: int = 1,
) -> Outcome:
    return Outcome(
        ErrorMessage(
            kind=outgoing.shortened(kind, "kind", outgoing.MAX_LABEL) or "Exception",
            text=outgoing.shortened(text, "text", min(MAX_TEXT, limits.piece)),
            traceback=shown,
            loading=loading,
        ),
        exit_status,
    )


def _traceback_of(error: BaseException, longest: int) -> str:
    try:
        where = _from_agents_code(error.__traceback__)
        lines = traceback.format_exception(type(error), error, where)
        text = outgoing.clean("".join(lines), "traceback")
    except Exception:  # noqa: BLE001 - the agent's own __str__ may raise anything
        return ""
    # The end of a traceback says what happened.
    return text if len(text) <= longest else "[...]\n" + text[len(text) - longest + 6 :]


def _from_agents_code(where: TracebackType | None) -> TracebackType | None:
    folders = (*MACHINERY, "<frozen importlib")
    first = where
    while first is not None and first.tb_frame.f_code.co_filename.startswith(folders):
        first = first.tb_next
    return first
