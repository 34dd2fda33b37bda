"""Writes ``states.md``: every state machine of the project, drawn from the code that runs it.

``python docs/make_states.py`` rewrites it; a test fails when it is stale.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from agentctl_protocol.channel_state import (
    AGENT_SAYS,
    SUPERVISOR_SAYS,
    AgentState,
    SupervisorState,
)
from agentctl_protocol.messages import ErrorMessage, ResultMessage
from agentctl_protocol.records import (
    Created,
    End,
    Exit,
    Lost,
    Record,
    RecordBody,
    RefusedRecord,
    Started,
    Stop,
)
from agentctl_protocol.report import Actor
from agentctl_protocol.spawning import ProcessIdentity
from agentctl_protocol.spec import RunSpec
from agentctl_protocol.vocabulary import By, Reason, Result, Rung, State
from agentctl_supervisor.report.reconcile import Fold
from agentctl_supervisor.report.run_outcome import settles
from agentctl_supervisor.stop.ladder import (
    CallAsked,
    GiveUp,
    Happened,
    Ladder,
    StopWanted,
    TimePassed,
    TreeEmpty,
    decide,
)

PAGE: Final = Path(__file__).resolve().parent / "states.md"

_TEXT: Final = """\
# States

What may follow what. This page is written by `make_states.py` from the tables and the pure
functions that the program itself runs; a test fails when it is stale.

## The channel

Each side keeps both machines: one for what it says, one for what it hears. A message without an
arrow is illegal: it raises and changes nothing ([protocol.md](protocol.md)).

What the agent has said:

{agent}

What the supervisor has said:

{supervisor}

## A run

The state of a run is a fold over its log: a record moves it, and nothing else does. What became of
a finished run is its result, a word of its own.

{run}

The first of these records decides the result. Whatever the log holds behind it is kept and shown,
and changes the result no more.

{outcome}

## The stop ladder

`stop` begins at the top, `kill` goes to the last rung from anywhere. A rung is left as soon as the
tree is empty, not when the first process has exited. A second stop takes no rung: it can only
shorten the time that is left.

{ladder}
"""


class Edge(NamedTuple):
    """*label* leads from *before* to *after*; None is outside of the machine."""

    before: str | None
    after: str | None
    label: str


def page() -> str:
    """The text of ``states.md`` as the code is now."""
    return _TEXT.format(
        agent=_diagram([Edge(None, AgentState.SILENT, ""), *_channel_edges(AGENT_SAYS)]),
        supervisor=_diagram(
            [Edge(None, SupervisorState.OPENING, ""), *_channel_edges(SUPERVISOR_SAYS)]
        ),
        run=_diagram(_run_edges()),
        outcome=_outcome_table(),
        ladder=_diagram(_ladder_edges()),
    )


def _diagram(edges: Iterable[Edge]) -> str:
    """A Mermaid diagram; edges between the same two states are drawn as one."""
    labels: dict[tuple[str | None, str | None], list[str]] = {}
    for edge in edges:
        labels.setdefault((edge.before, edge.after), []).append(edge.label)
    names = {state: None for pair in labels for state in pair if state is not None}
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f'    state "{name}" as {_key(name)}' for name in names if _key(name) != name]
    for (before, after), texts in labels.items():
        label = ", ".join(text for text in texts if text)
        arrow = f"    {_key(before)} --> {_key(after)}"
        lines.append(f"{arrow}: {label}" if label else arrow)
    return "\n".join([*lines, "```"])


def _key(name: str | None) -> str:
    return "[*]" if name is None else name.replace(" ", "_")


def _channel_edges(
    table: Mapping[tuple[AgentState, str], AgentState]
    | Mapping[tuple[SupervisorState, str], SupervisorState],
) -> Iterator[Edge]:
    for (before, tag), after in table.items():
        yield Edge(before, after, tag)


# --- a run: tried out on the fold ------------------------------------------

_STOP: Final = Stop(Result.STOPPED, Reason.USER, "", Actor("uid", "0"), 5.0, 2.0)
_MOVING: Final[dict[str, RecordBody]] = {
    "started": Started(),
    "stop": _STOP,
    "refused": RefusedRecord(Reason.SANDBOX, ""),
    "lost": Lost(""),
    "end": End(),
}
_DECIDING: Final[dict[str, RecordBody]] = {
    "`result`": ResultMessage(),
    "`error`": ErrorMessage(kind="E"),
    "`error` while loading: there is no such function": ErrorMessage(
        kind="AttributeError", loading=True
    ),
    "`exit`, code 0": Exit(code=0),
    "`exit`, another code or a signal": Exit(code=1),
    "`stop`": _STOP,
    "`refused`": RefusedRecord(Reason.SANDBOX, ""),
    "`lost`": Lost(""),
}
_FUNCTION: Final = RunSpec(target="module:function")
_PROGRAM: Final = RunSpec(argv=("program",))


def _folded(spec: RunSpec, *bodies: RecordBody) -> Fold:
    fold = Fold("r-aaaaaaaa", spec)
    first = Created(supervisor=ProcessIdentity(1, 1), boot_id="")
    for seq, body in enumerate((first, *bodies), 1):
        fold.apply(Record(seq, seq, By.SUPERVISOR, body))
    return fold


def _run_edges() -> Iterator[Edge]:
    yield Edge(None, _folded(_PROGRAM).state, "created")
    ways: dict[State, tuple[RecordBody, ...]] = {_folded(_PROGRAM).state: ()}
    for before, way in _each_as_they_grow(ways):
        for name, body in _MOVING.items():
            if name == "refused" and _MOVING["started"] in way:
                continue  # that is what the word means: it never started
            after = _folded(_PROGRAM, *way, body).state
            ways.setdefault(after, (*way, body))
            if after is not before:
                yield Edge(before, after, name)


def _each_as_they_grow(
    ways: dict[State, tuple[RecordBody, ...]],
) -> Iterator[tuple[State, tuple[RecordBody, ...]]]:
    """The items of *ways*, those added on the way too."""
    done: set[State] = set()
    while left := [state for state in ways if state not in done]:
        done.add(left[0])
        yield left[0], ways[left[0]]


def _outcome_table() -> str:
    rows = ["| record | of a function | of a program |", "|---|---|---|"]
    for name, body in _DECIDING.items():
        cells = (_result(spec, body) for spec in (_FUNCTION, _PROGRAM))
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _result(spec: RunSpec, body: RecordBody) -> str:
    if not settles(body, is_callable=spec.target is not None):
        return "decides nothing"
    result = _folded(spec, Started(), body, End()).report().result
    assert result is not None
    return result.value


# --- the ladder: tried out on `decide` --------------------------------------

_HAPPENING: Final[dict[str, Happened]] = {
    "stop": StopWanted(grace_s=5, term_grace_s=2),
    "stop of one that cannot hear": StopWanted(grace_s=5, term_grace_s=2, can_hear=False),
    "kill": StopWanted(grace_s=0, term_grace_s=0, kill=True),
    "it asks for a call": CallAsked(),
    "time is up": TimePassed(),
    "the tree is empty": TreeEmpty(),
}
_NOBODY_ASKED: Final = "going on"
_EMPTY: Final = "gone"
_LEFT: Final = "survivors are named"


def _ladder_edges() -> Iterator[Edge]:
    yield Edge(None, _NOBODY_ASKED, "")
    for rung in (None, *Rung):
        for what, happened in _HAPPENING.items():
            due = 10.0
            ladder = Ladder() if rung is None else Ladder(rung, until=due, term_grace_s=2.0)
            if rung is not None and what.startswith("stop"):
                continue  # in words above: it takes no rung
            after, actions = decide(ladder, happened, due)
            if after == ladder:
                continue
            before_name = _NOBODY_ASKED if rung is None else rung.value
            if after.over:
                name = _LEFT if GiveUp() in actions else _EMPTY
            else:
                assert after.rung is not None
                name = after.rung.value
            yield Edge(before_name, name, what)
    yield Edge(_EMPTY, None, "")
    yield Edge(_LEFT, None, "")


if __name__ == "__main__":
    PAGE.write_text(page())
