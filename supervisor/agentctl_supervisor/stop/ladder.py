"""The stop ladder: ask the agent, then SIGTERM, then SIGKILL of the whole tree.

Pure: `decide` takes the state of the ladder and an event, and returns what to do.  It reads
no clock and touches no process; `ladder_run` carries out what it returns.  All rules of the
design are here:

* A rung ends early when the tree is empty, never because the leader exited.
* A second stop may shorten the remaining time, never lengthen it.
* An agent that never said hello cannot be asked: its grace is 0.
* An agent that asks for a call after the stop proves that it ignores the stop: the rest of its
  grace is skipped.  An ask that may have been sent before the request arrived proves nothing.
* A kill starts at the last rung.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from agentctl_protocol.vocabulary import Rung

GIVE_UP_S: Final = 30.0
"""The seconds that SIGKILL may take to empty a tree before its survivors are named.

1,000 processes take 0.04 s side by side, and 0.7 s if they are nested 1,000 deep.  The warden
reports processes that hang in the kernel, or that an outside tracer holds, after 5 s.  This
limit is for a warden that reports nothing.  It is longer than the warden waits for thousands of
processes that die on a busy machine.
"""


CROSSING_S: Final = 0.25
"""The seconds after the request in which an ask may arrive that was sent before it.

Such an ask waited in the socket while we were busy.  An agent that ignores the request asks
again."""


@dataclass(frozen=True, slots=True)
class Ladder:
    """The state of a stop.

    ``rung`` is None if no stop was requested.  ``until`` is the time at which the rung ends.
    """

    rung: Rung | None = None
    until: float = math.inf
    term_grace_s: float = 0.0
    over: bool = False


# --- what may happen -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StopWanted:
    """A request to end the run.  ``can_hear``: the agent said hello and not yet bye."""

    grace_s: float
    term_grace_s: float
    kill: bool = False
    can_hear: bool = True


@dataclass(frozen=True, slots=True)
class TimePassed:
    """The event that time has passed."""


@dataclass(frozen=True, slots=True)
class CallAsked:
    """An ask for a call, which was read *after_s* seconds after the agent was asked to stop."""

    after_s: float = math.inf


@dataclass(frozen=True, slots=True)
class TreeEmpty:
    """The event that no process of the run is left."""


Happened: TypeAlias = StopWanted | TimePassed | CallAsked | TreeEmpty


# --- what is to be done ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Take:
    """Take this rung now; ``left_s`` is the seconds that it gives the agent."""

    rung: Rung
    left_s: float


@dataclass(frozen=True, slots=True)
class Note:
    """Write down how a rung was answered."""

    rung: Rung
    how: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Name the survivors and end, because SIGKILL did not empty the tree."""


Action: TypeAlias = Take | Note | GiveUp


def decide(ladder: Ladder, happened: Happened, now: float) -> tuple[Ladder, list[Action]]:
    """Return the ladder after *happened*, and what to do, in order.

    All times are seconds of one clock.
    """
    if ladder.over:
        return ladder, []
    match happened:
        case TreeEmpty():
            done = [] if ladder.rung is None else [Note(ladder.rung, "yes")]
            return replace(ladder, over=True, until=math.inf), list(done)
        case StopWanted():
            return _wanted(ladder, happened, now)
        case CallAsked(after_s=after_s) if ladder.rung is Rung.ASKED and after_s >= CROSSING_S:
            return _next(ladder, now, "asked for a call")
        case TimePassed() if now >= ladder.until:
            return _next(ladder, now, "no")
    return ladder, []


def _wanted(ladder: Ladder, wanted: StopWanted, now: float) -> tuple[Ladder, list[Action]]:
    if wanted.kill:
        if ladder.rung is Rung.SIGKILL:
            return ladder, []
        before: list[Action] = [] if ladder.rung is None else [Note(ladder.rung, "no")]
        after, actions = _take(ladder, Rung.SIGKILL, GIVE_UP_S, now)
        return after, before + actions
    if ladder.rung is None:
        grace_s = wanted.grace_s if wanted.can_hear else 0.0
        begun = replace(ladder, term_grace_s=wanted.term_grace_s)
        after, actions = _take(begun, Rung.ASKED, grace_s, now)
        if wanted.can_hear and grace_s > 0:
            return after, actions
        further, more = _next(after, now, "no" if wanted.can_hear else "no channel")
        return further, actions + more
    left_s = {Rung.ASKED: wanted.grace_s, Rung.SIGTERM: wanted.term_grace_s}.get(
        ladder.rung, math.inf
    )
    shorter = replace(
        ladder,
        until=min(ladder.until, now + left_s),
        term_grace_s=min(ladder.term_grace_s, wanted.term_grace_s),
    )
    return decide(shorter, TimePassed(), now)


def _next(ladder: Ladder, now: float, how: str) -> tuple[Ladder, list[Action]]:
    """Go from a rung that did not empty the tree to the next one."""
    assert ladder.rung is not None
    noted: list[Action] = [Note(ladder.rung, how)]
    if ladder.rung is Rung.ASKED:
        after, actions = _take(ladder, Rung.SIGTERM, ladder.term_grace_s, now)
        if ladder.term_grace_s > 0:
            return after, noted + actions
        further, more = _next(after, now, "no")
        return further, noted + actions + more
    if ladder.rung is Rung.SIGTERM:
        after, actions = _take(ladder, Rung.SIGKILL, GIVE_UP_S, now)
        return after, noted + actions
    return replace(ladder, over=True, until=math.inf), [*noted, GiveUp()]


def _take(ladder: Ladder, rung: Rung, left_s: float, now: float) -> tuple[Ladder, list[Action]]:
    return replace(ladder, rung=rung, until=now + left_s), [Take(rung, left_s)]
