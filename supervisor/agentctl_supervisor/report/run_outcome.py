"""Decides the outcome of a run from the facts in its log, and describes it in one sentence.

The first record in the log that settles the outcome decides it.  No later record can change
it.  Pure functions; no clock, no files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from signal import Signals
from typing import Final, NamedTuple, TypeAlias

from agentctl_protocol.messages import ErrorMessage, ResultMessage
from agentctl_protocol.records import Exit, Illegal, Lost, RefusedRecord, Stop
from agentctl_protocol.report import Actor, LadderStep
from agentctl_protocol.vocabulary import Reason, Result, Rung

_MAX_DETAIL: Final = 1000
_NOT_FOUND: Final = frozenset({"ModuleNotFoundError", "AttributeError", "FileNotFoundError"})
_IGNORED: Final = {Rung.ASKED: "the request", Rung.SIGTERM: "SIGTERM"}
_OBEYED: Final = {
    Rung.ASKED: "it ended when it was asked to",
    Rung.SIGTERM: "it ended on SIGTERM",
}
_UNHEEDED: Final = ("no", "asked for a call")

Decisive: TypeAlias = ResultMessage | ErrorMessage | Exit | Stop | Lost | RefusedRecord


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts in the log that matter for the outcome.

    ``decided`` is the first record that settles it (see `settles`).  ``stop_after_s`` is how long
    the agent had run when the stop was recorded.  ``ended``: the tree is gone.
    ``never_began``: the agent's first line was never reached.
    """

    decided: Decisive | None = None
    exit: Exit | None = None
    illegal: Illegal | None = None
    stop_after_s: float | None = None
    ladder: Sequence[LadderStep] = ()
    survivors: int = 0
    ended: bool = False
    never_began: bool = False
    is_callable: bool = False


class Outcome(NamedTuple):
    """The outcome, in the terms of `Report`."""

    result: Result
    reason: Reason | None
    detail: str
    actor: Actor | None = None


def settles(body: object, *, is_callable: bool) -> bool:
    """Return True if *body* settles the outcome, provided that no earlier record did.

    A function is complete with its result or error.  The exit of its process settles the outcome
    only if it gave neither.  A program is complete with its exit.
    """
    match body:
        case Stop() | Lost() | RefusedRecord():
            return True
        case ResultMessage() | ErrorMessage():
            return is_callable
        case Exit(code=code, signal=signal):
            return code is not None or signal is not None
    return False


def outcome(facts: Facts) -> Outcome | None:
    """Return the outcome of the run, or None if it is still open."""
    match facts.decided:
        case Stop() as stop:
            return Outcome(stop.result, stop.reason, _stopped(stop, facts), stop.actor)
        case RefusedRecord(reason=reason, detail=detail, hint=hint):
            return Outcome(Result.REFUSED, reason, _line(f"{detail}: {hint}" if hint else detail))
        case Lost(detail=detail):
            return _lost(detail or "how the agent ended is not known")
        case ResultMessage():
            return Outcome(Result.SUCCEEDED, None, "it returned a value")
        case ErrorMessage() as error:
            return _raised(error)
        case Exit() as exit_:
            return _exited(exit_, facts)
    if facts.ended:
        known = f"; {facts.exit.detail}" if facts.exit and facts.exit.detail else ""
        return _lost(f"how the agent ended is not known{known}")
    return None


def _lost(detail: str) -> Outcome:
    return Outcome(Result.LOST, Reason.SUPERVISOR_DIED, _line(detail))


def _raised(error: ErrorMessage) -> Outcome:
    said = _line(f"{error.kind}: {error.text}" if error.text else error.kind)
    # Without a traceback, the target itself is missing.  With one, something that the agent's
    # module needed is missing.
    if error.loading and not error.traceback and error.kind in _NOT_FOUND:
        return Outcome(Result.REFUSED, Reason.NOT_FOUND, said)
    return Outcome(Result.FAILED, Reason.EXCEPTION, said)


def _exited(exit_: Exit, facts: Facts) -> Outcome:
    if facts.illegal is not None:
        return Outcome(Result.FAILED, Reason.PROTOCOL, _line(facts.illegal.detail))
    without = " before it returned a value" if facts.is_callable else ""
    known = f"; {exit_.detail}" if exit_.detail else ""
    if exit_.signal is not None:
        said = f"killed by {_signal_name(exit_.signal)}{without}{known}"
        return Outcome(Result.FAILED, Reason.SIGNAL, _line(said))
    if exit_.code == 0 and not facts.is_callable:
        return Outcome(Result.SUCCEEDED, None, "exit code 0")
    return Outcome(Result.FAILED, Reason.EXIT, _line(f"exit code {exit_.code}{without}{known}"))


def _stopped(stop: Stop, facts: Facts) -> str:
    """Describe a stop, like: stopped by uid 0 (root) after 3.2 s: it ended on SIGTERM."""
    if stop.result is Result.STOPPED:
        said = f"{'killed' if stop.kill else 'stopped'} by {_who(stop.actor)}"
        if facts.stop_after_s is not None:
            said += f" after {facts.stop_after_s:.1f} s"
        if stop.detail:
            said += f" ({stop.detail})"
    else:
        said = stop.detail or f"{stop.reason} {stop.result}"
    parts = [said, _how_it_went(facts)]
    if facts.survivors:
        parts.append(f"{facts.survivors} of its processes survive")
    return _line(": ".join(part for part in parts if part))


def _how_it_went(facts: Facts) -> str:
    if facts.never_began:
        return "before it began"
    if not facts.ended or not facts.ladder:
        return ""
    if facts.exit is not None and facts.exit.orphaned:
        return "its keepers killed it when its supervisor was gone"
    used = {step.step: step.answered for step in facts.ladder}
    if Rung.SIGKILL in used:
        ignored = " and ".join(
            words for rung, words in _IGNORED.items() if used.get(rung) in _UNHEEDED
        )
        return f"it ignored {ignored} and was killed" if ignored else "it was killed"
    rung = Rung.SIGTERM if Rung.SIGTERM in used else Rung.ASKED
    return _OBEYED[rung] if used[rung] else "how it ended is not known"


def _who(actor: Actor) -> str:
    if actor.kind == "uid" and actor.id == "0":
        return "uid 0 (root)"
    return f"{actor.kind} {actor.id}".strip()


def _signal_name(number: int) -> str:
    try:
        return Signals(number).name
    except ValueError:
        return f"signal {number}"


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_DETAIL else line[:_MAX_DETAIL] + "..."
