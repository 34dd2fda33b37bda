"""The states of the two sides of the channel, as tables.

Rules for editing this file:

* Every transition is here. `channel.Channel` reads the tables; nothing else decides.
* The tables do not know which role this process plays. Each side runs both tables: one for what it
  says and one for what it hears.
* A pair that is not in the table is illegal: it raises and changes nothing.
* ``docs/states.md`` is generated from these tables (``docs/make_states.py``).
"""

import enum
from typing import Final


class AgentState(enum.StrEnum):
    """The state of the agent's side, by what it has said so far."""

    # Enum's own hash is Python code, and would be half the cost of a look-up in the table.
    __hash__ = str.__hash__

    SILENT = "silent"  # nothing: a program that ignores the channel stays here
    GREETED = "greeted"  # hello; the agent's code is being loaded
    ACTIVE = "active"  # ready; the agent's code runs
    ANSWERED = "answered"  # result or error; threads may still report
    GONE = "gone"  # bye; any further message is illegal


class SupervisorState(enum.StrEnum):
    """The state of the supervisor's side, by what it has said so far."""

    __hash__ = str.__hash__

    OPENING = "opening"  # waiting for hello
    STARTED = "started"
    INPUT_ENDED = "input ended"
    CANCELLING = "cancelling"  # no input, no more grants; acks and refusals continue


_A: Final = AgentState
AGENT_SAYS: Final[dict[tuple[AgentState, str], AgentState]] = {
    (_A.SILENT, "hello"): _A.GREETED,
    # The agent's module may report, and even call, while it is being imported.
    (_A.GREETED, "events"): _A.GREETED,
    (_A.GREETED, "ask"): _A.GREETED,
    (_A.GREETED, "call_finished"): _A.GREETED,
    (_A.GREETED, "beat"): _A.GREETED,
    (_A.GREETED, "ready"): _A.ACTIVE,
    (_A.GREETED, "error"): _A.ANSWERED,
    (_A.GREETED, "bye"): _A.GONE,
    (_A.ACTIVE, "events"): _A.ACTIVE,
    (_A.ACTIVE, "ask"): _A.ACTIVE,
    (_A.ACTIVE, "call_finished"): _A.ACTIVE,
    (_A.ACTIVE, "beat"): _A.ACTIVE,
    (_A.ACTIVE, "result"): _A.ANSWERED,
    (_A.ACTIVE, "error"): _A.ANSWERED,
    (_A.ACTIVE, "bye"): _A.GONE,
    # Threads that the agent left behind may report and ask; the gate refuses their asks.
    (_A.ANSWERED, "events"): _A.ANSWERED,
    (_A.ANSWERED, "ask"): _A.ANSWERED,
    (_A.ANSWERED, "call_finished"): _A.ANSWERED,
    (_A.ANSWERED, "beat"): _A.ANSWERED,
    (_A.ANSWERED, "bye"): _A.GONE,
}

_S: Final = SupervisorState
SUPERVISOR_SAYS: Final[dict[tuple[SupervisorState, str], SupervisorState]] = {
    (_S.OPENING, "start"): _S.STARTED,
    (_S.OPENING, "ping"): _S.OPENING,
    (_S.STARTED, "verdict"): _S.STARTED,
    (_S.STARTED, "input"): _S.STARTED,
    (_S.STARTED, "input_end"): _S.INPUT_ENDED,
    (_S.STARTED, "ack"): _S.STARTED,
    (_S.STARTED, "ping"): _S.STARTED,
    (_S.STARTED, "cancel"): _S.CANCELLING,
    (_S.INPUT_ENDED, "verdict"): _S.INPUT_ENDED,
    (_S.INPUT_ENDED, "ack"): _S.INPUT_ENDED,
    (_S.INPUT_ENDED, "ping"): _S.INPUT_ENDED,
    (_S.INPUT_ENDED, "cancel"): _S.CANCELLING,
    # A second cancel shortens the deadline of the first.
    (_S.CANCELLING, "cancel"): _S.CANCELLING,
    (_S.CANCELLING, "verdict"): _S.CANCELLING,
    (_S.CANCELLING, "ack"): _S.CANCELLING,
    (_S.CANCELLING, "ping"): _S.CANCELLING,
}
