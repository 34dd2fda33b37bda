"""Reads what a client observed of a run whose supervisor does not answer.

A client that stops such a run must not write to its log.  It leaves two files beside the log:
the intent and the observation.  This module reads them as the records that the lock holder will
make of them, so that a report is the same before and after the holder continues.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from agentctl_protocol.records import (
    Answered,
    End,
    Observed,
    Record,
    RungRecord,
    Stop,
    SupervisorRecord,
)
from agentctl_protocol.report import Report
from agentctl_protocol.vocabulary import By, Containment, State
from agentctl_supervisor.processes import process_tree
from agentctl_supervisor.report.reconcile import Fold

Seen: TypeAlias = tuple[int, SupervisorRecord]
"""The wall time in nanoseconds, and the record that a supervisor would have written then."""

_NEVER_WRITTEN: Final = 1 << 62
"""A sequence number above that of every record in a log."""
_WHOSE_WORD: Final = "told by the client that ended it: its supervisor does not answer"


def observation(seen: Sequence[Seen]) -> Observed:
    """Return *seen*, up to the end of the run, in the form that is left for the lock holder."""
    steps = [
        msgspec.structs.replace(body, at_ns=time_ns) if isinstance(body, RungRecord) else body
        for time_ns, body in seen
        if isinstance(body, RungRecord | Answered)
    ]
    ((at_ns, end),) = [(time_ns, body) for time_ns, body in seen if isinstance(body, End)]
    return Observed(tuple(steps), end.processes, at_ns)


def told(fold: Fold, seen: Sequence[Seen]) -> Report:
    """Return the report for people: *fold*, which has the log so far, with *seen* applied to it.

    The records are those that the holder would have appended, and the same fold judges them, so
    that an outcome that the log decided before stays the same.
    """
    for number, (time_ns, body) in enumerate(seen):
        fold.apply(Record(_NEVER_WRITTEN + number, time_ns, By.SUPERVISOR, body))
    return fold.report()


def with_intent(report: Report, intent: Stop | None) -> Report:
    """Return *report*, as stopping if there is an *intent* that its supervisor has not read yet."""
    if intent is None or report.finished:
        return report
    return msgspec.structs.replace(report, state=State.STOPPING)


def with_observed(fold: Fold, known: Report, intent: Stop | None, observed: Observed) -> Report:
    """Return *known*, the report of *fold*, with what was *observed* of the stop *intent*.

    The run counts as finished only if its keepers are dead now, as far as this can be seen from
    here: the files beside a log prove nothing by themselves.
    """
    if intent is None or fold.ended or observed.processes.survivors or _is_held_by_keepers(fold):
        return with_intent(known, intent)
    at_ns = observed.at_ns or fold.last_ns
    seen = [(intent.at_ns or at_ns, intent), *((at_ns, step) for step in observed.steps)]
    report = told(fold, [*seen, (at_ns, End(processes=observed.processes))])
    return msgspec.structs.replace(report, detail=f"{report.detail} ({_WHOSE_WORD})", log=known.log)


def is_seen_to_be_gone(fold: Fold) -> bool:
    """Return True if a run that has not ended in the log is known to be gone.

    Only the end of its init proves this: a dead warden may have left processes behind.
    """
    contained = fold.contained
    return (
        contained is not None
        and contained.containment is Containment.PID_NAMESPACE
        and not fold.ended
        and fold.created is not None
        and not process_tree.is_out_of_sight(fold.created)
        and not process_tree.is_alive(contained.root)
    )


def _is_held_by_keepers(fold: Fold) -> bool:
    """Return True if the init (or else the warden) is alive, whose end proves that of the tree."""
    contained = fold.contained
    if contained is None or fold.created is None or process_tree.is_out_of_sight(fold.created):
        return False
    return process_tree.is_alive(process_tree.last_keeper(contained))
