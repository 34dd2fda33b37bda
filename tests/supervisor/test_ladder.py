"""The stop ladder as a pure function: what is done when, and never twice."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl_protocol.vocabulary import Rung
from agentctl_supervisor.stop.ladder import (
    CROSSING_S,
    GIVE_UP_S,
    Action,
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

POLITE = StopWanted(grace_s=5, term_grace_s=2)


def play(*story: tuple[float, Happened]) -> tuple[Ladder, list[tuple[float, Action]]]:
    """The ladder after *story*, and every action with its time; timers fire when they are due."""
    ladder, done = Ladder(), []
    for now, happened in story:
        while ladder.until < now:
            due = ladder.until
            ladder, actions = decide(ladder, TimePassed(), due)
            done += [(due, action) for action in actions]
        ladder, actions = decide(ladder, happened, now)
        done += [(now, action) for action in actions]
    return ladder, done


def test_an_agent_that_ignores_everything_meets_each_rung_after_its_grace() -> None:
    """Asked at once, SIGTERM after the grace, SIGKILL after the term grace, then we give up."""
    _, done = play((0, POLITE), (100, TimePassed()))
    assert done == [
        (0, Take(Rung.ASKED, 5)),
        (5, Note(Rung.ASKED, "no")),
        (5, Take(Rung.SIGTERM, 2)),
        (7, Note(Rung.SIGTERM, "no")),
        (7, Take(Rung.SIGKILL, GIVE_UP_S)),
        (7 + GIVE_UP_S, Note(Rung.SIGKILL, "no")),
        (7 + GIVE_UP_S, GiveUp()),
    ]


@pytest.mark.parametrize(("gone", "rung"), [(1, Rung.ASKED), (6, Rung.SIGTERM), (8, Rung.SIGKILL)])
def test_a_rung_ends_early_when_the_tree_is_empty(gone: float, rung: Rung) -> None:
    """The rung at which the tree became empty was answered, and none follows it."""
    ladder, done = play((0, POLITE), (gone, TreeEmpty()), (100, TimePassed()))
    assert done[-1] == (gone, Note(rung, "yes"))
    assert ladder.over


def test_an_agent_that_never_said_hello_is_not_waited_for() -> None:
    """Without a channel the cooperative grace is 0, and the ladder says why."""
    _, done = play((0, StopWanted(5, 2, can_hear=False)))
    assert done == [
        (0, Take(Rung.ASKED, 0)),
        (0, Note(Rung.ASKED, "no channel")),
        (0, Take(Rung.SIGTERM, 2)),
    ]


def test_an_ask_after_the_stop_skips_the_rest_of_the_grace() -> None:
    """Who asks for a call when asked to stop has shown that it ignores the stop."""
    _, done = play((0, POLITE), (1, CallAsked()))
    assert done[1:] == [(1, Note(Rung.ASKED, "asked for a call")), (1, Take(Rung.SIGTERM, 2))]


def test_an_ask_that_crossed_the_request_on_its_way_proves_nothing() -> None:
    """It was sent before the agent could know; one that comes later than that counts."""
    crossed, later = CallAsked(CROSSING_S - 0.01), CallAsked(CROSSING_S)
    _, done = play((0, POLITE), (0.24, crossed), (0.25, later))
    assert done[1:] == [(0.25, Note(Rung.ASKED, "asked for a call")), (0.25, Take(Rung.SIGTERM, 2))]


def test_an_ask_before_the_stop_means_nothing() -> None:
    """Nothing happens to a run that nobody stops."""
    assert play((0, CallAsked()), (9, TimePassed())) == (Ladder(), [])


@pytest.mark.parametrize("rung", list(Rung))
def test_a_kill_goes_straight_to_the_last_rung(rung: Rung) -> None:
    """From wherever the ladder stands, SIGKILL is next; a second kill changes nothing."""
    at = {Rung.ASKED: 1.0, Rung.SIGTERM: 6.0, Rung.SIGKILL: 8.0}[rung]
    kill = StopWanted(0, 0, kill=True)
    _, done = play((0, POLITE), (at, kill), (at, kill))
    assert [action for _, action in done if isinstance(action, Take)][-1].rung is Rung.SIGKILL
    assert sum(action == Take(Rung.SIGKILL, GIVE_UP_S) for _, action in done) == 1


def test_graces_of_zero_pass_every_rung_at_once() -> None:
    """Grace 0 still sends the message and SIGTERM, in order, before SIGKILL."""
    _, done = play((0, StopWanted(0, 0)))
    assert [action.rung for _, action in done if isinstance(action, Take)] == list(Rung)
    assert {now for now, _ in done} == {0}


@given(
    st.lists(st.tuples(st.floats(0, 20), st.floats(0, 20)), min_size=1, max_size=4),
    st.lists(st.floats(0, 3), min_size=4, max_size=4),
)
def test_a_later_stop_never_lengthens(
    graces: list[tuple[float, float]], pauses: list[float]
) -> None:
    """Whatever later stops say, SIGKILL comes no later than the first stop promised."""
    times = itertools.accumulate(pauses)
    story: list[tuple[float, Happened]] = [
        (now, StopWanted(grace, term)) for now, (grace, term) in zip(times, graces, strict=False)
    ]
    first = story[0][0]
    _, done = play(*story, (1000, TimePassed()))
    killed = [now for now, action in done if action == Take(Rung.SIGKILL, GIVE_UP_S)]
    assert len(killed) == 1
    assert killed[0] <= first + sum(graces[0]) + 1e-9


@given(
    st.lists(
        st.tuples(
            st.floats(0, 5),
            st.one_of(
                st.just(TimePassed()),
                st.just(CallAsked()),
                st.just(TreeEmpty()),
                st.builds(StopWanted, st.floats(0, 9), st.floats(0, 9), st.booleans()),
            ),
        ),
        max_size=12,
    )
)
def test_rungs_are_taken_in_order_and_once(pauses: list[tuple[float, Happened]]) -> None:
    """No story makes the ladder go back, take a rung twice, or act after its end."""
    now, story = 0.0, []
    for pause, happened in pauses:
        now += pause
        story.append((now, happened))
    _, done = play(*story)
    taken = [action.rung for _, action in done if isinstance(action, Take)]
    assert taken == sorted(set(taken), key=list(Rung).index)
    ends = [
        index
        for index, (_, action) in enumerate(done)
        if action == GiveUp() or (isinstance(action, Note) and action.how == "yes")
    ]
    assert not ends or ends == [len(done) - 1]
