"""The ladder step by step, against a formula that looks at the whole story at once."""

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from agentctl_protocol.vocabulary import Rung
from agentctl_supervisor.stop.ladder import (
    GIVE_UP_S,
    CallAsked,
    GiveUp,
    Happened,
    Ladder,
    Note,
    StopWanted,
    Take,
    TimePassed,
    TreeEmpty,
    decide,
)

_SECONDS = st.integers(0, 12).map(float)
#: Each event comes this much later than on the second, once more than the one before: sums are
#: exact, and no two things ever fall together, so that the formula needs no order.
_TICK = 1 / 1024


class Climbing(RuleBasedStateMachine):
    """One ladder, a clock, and everything that happened with its time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.ladder = Ladder()
        self.stops: list[tuple[float, StopWanted]] = []
        self.asks: list[float] = []
        self.emptied = math.inf
        self.taken: dict[Rung, float] = {}
        self.answers: dict[Rung, str] = {}
        self.gave_up = math.inf

    @initialize(wanted=st.builds(StopWanted, _SECONDS, _SECONDS, can_hear=st.booleans()))
    def somebody_wants_an_end(self, wanted: StopWanted) -> None:
        self.stop(wanted)

    @rule(seconds=st.integers(0, 5).map(float))
    def time_passes(self, seconds: float) -> None:
        """Timers fire when they are due, not when somebody looks."""
        then = self.now + seconds
        while self.ladder.until <= then:
            self.now = self.ladder.until
            self.happen(TimePassed())
        self.now = then

    @rule(wanted=st.builds(StopWanted, _SECONDS, _SECONDS))
    def stop(self, wanted: StopWanted) -> None:
        self.time_passes(_TICK)
        self.stops.append((self.now, wanted))
        self.happen(wanted)

    @rule(what=st.sampled_from(["kill", "ask", "empty"]))
    def something_hastens_it(self, what: str) -> None:
        """One rule for three, so that not every story is over before it has begun."""
        if what == "kill":
            self.stop(StopWanted(0, 0, kill=True))
            return
        self.time_passes(_TICK)
        if what == "ask":
            self.asks.append(self.now)
            self.happen(CallAsked())
        elif self.emptied == math.inf:
            self.emptied = self.now
            self.happen(TreeEmpty())

    def happen(self, happened: Happened) -> None:
        """Do what the ladder says, once."""
        self.ladder, actions = decide(self.ladder, happened, self.now)
        for action in actions:
            match action:
                case Take(rung=rung):
                    assert rung not in self.taken
                    assert len(self.answers) == len(self.taken), "the last one has no answer yet"
                    self.taken[rung] = self.now
                case Note(rung=rung, how=how):
                    assert rung in self.taken
                    assert rung not in self.answers
                    self.answers[rung] = how
                case GiveUp():
                    assert self.gave_up == math.inf
                    self.gave_up = self.now

    @invariant()
    def rungs_were_taken_when_the_formula_says(self) -> None:
        due = self.formula()
        assert self.taken == {rung: at for rung, at in due.items() if at <= self.now}

    @invariant()
    def it_ends_with_an_empty_tree_or_with_the_names_of_survivors(self) -> None:
        killed = self.formula().get(Rung.SIGKILL, math.inf)
        assert self.gave_up in (math.inf, killed + GIVE_UP_S)
        over = min(self.emptied, killed + GIVE_UP_S) <= self.now
        assert self.ladder.over == over
        if over:
            assert self.answers.keys() == self.taken.keys()
            last = list(self.taken)[-1]
            assert (self.answers[last] == "yes") == (self.emptied < killed + GIVE_UP_S)

    def formula(self) -> dict[Rung, float]:
        """When each rung is due, from the whole story: each stop sets bounds, the least counts."""
        began, first = self.stops[0]
        polite = [(at, wanted) for at, wanted in self.stops if not wanted.kill]
        killed = min((at for at, wanted in self.stops if wanted.kill), default=math.inf)
        termed = min([*(at + wanted.grace_s for at, wanted in polite), *self.asks])
        if not first.can_hear:
            termed = began
        if termed < killed:
            graces = min(wanted.term_grace_s for at, wanted in polite if at <= termed)
            later = [at + wanted.term_grace_s for at, wanted in polite if at > termed]
            killed = min(killed, termed + graces, *later)
        due = {Rung.ASKED: began, Rung.SIGTERM: termed, Rung.SIGKILL: killed}
        if termed > killed:
            del due[Rung.SIGTERM]
        return {rung: at for rung, at in due.items() if at <= self.emptied}


def test_the_ladder_climbs_as_the_formula_says() -> None:
    """Rungs, times and answers, whatever stops, kills and calls come in between."""
    run_state_machine_as_test(Climbing, settings=settings(max_examples=150, stateful_step_count=8))
