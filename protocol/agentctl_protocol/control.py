"""The requests of a client to a supervisor over its control socket, and the answers.

The framing is the same as the channel's. `Ping`, `Stop` and `Kill` and their answers are frozen:
any version of the command line can stop a run of any version of a supervisor. A connection carries
one request. The answer to a stop is a stream that ends with `Done` or `Failed`. Closing the
connection neither undoes nor hastens a stop.
"""

from typing import Annotated, Final, TypeAlias

import msgspec

from agentctl_protocol.messages import Seconds
from agentctl_protocol.report import Report
from agentctl_protocol.vocabulary import Rung

CONTROL_VERSION: Final = 1
#: If a ping gets no answer within this many seconds, the supervisor is stuck and others may act.
PING_TIMEOUT_S: Final = 0.5

#: A frame may carry a whole report, whose text, value and checkpoint are up to 1 MiB each.
MAX_CONTROL_FRAME: Final = 16 << 20

_Text = Annotated[str, msgspec.Meta(max_length=4096)]
_Number = Annotated[int, msgspec.Meta(ge=0)]


class _Control(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """A control message."""


class Ping(_Control, frozen=True, tag="ping"):
    """A request for a sign of life."""


class StopRequest(_Control, frozen=True, tag="stop"):
    """A request to stop this run and report the progress. Graces of None are those of the run."""

    run: _Text
    grace_s: Seconds | None = None
    term_grace_s: Seconds | None = None
    reason: _Text = ""


class KillRequest(_Control, frozen=True, tag="kill"):
    """A request to send SIGKILL to this run's whole tree now."""

    run: _Text
    reason: _Text = ""


class StatusRequest(_Control, frozen=True, tag="status"):
    """A request for what is known of this run, or (if empty) of all live runs of this supervisor.

    ``brief``: leave out what an agent can make long (`Report.brief`).
    """

    run: _Text = ""
    brief: bool = False


class VerdictRequest(_Control, frozen=True, tag="verdict"):
    """A person's verdict on a call of this run that waits for one. ``why``: if refused.

    ``number`` selects the call with this number. ``up_to`` selects all waiting calls that have no
    higher number. With neither, ``call`` selects the call by the agent's id.
    """

    run: _Text
    call: _Text
    granted: bool
    why: _Text = ""
    number: _Number = 0
    up_to: _Number = 0


class SignalRequest(_Control, frozen=True, tag="signal"):
    """A request to fire the run's ``external()`` termination condition."""

    run: _Text


Request: TypeAlias = (
    Ping | StopRequest | KillRequest | StatusRequest | VerdictRequest | SignalRequest
)


class Pong(_Control, frozen=True, tag="pong"):
    """The answer to a ping."""

    version: int = CONTROL_VERSION
    pid: int = 0


class Step(_Control, frozen=True, tag="step"):
    """A change of the ladder. If ``step`` is None, ``answered`` is how the step before it ended.

    ``at_least``: there are more than ``processes`` says.
    """

    step: Rung | None = None
    answered: str = ""
    processes: int = 0
    left_s: float = 0.0
    at_least: bool = False


class Done(_Control, frozen=True, tag="done"):
    """The run is over. ``already``: it was over before this request."""

    report: Report
    already: bool = False


class Statuses(_Control, frozen=True, tag="statuses"):
    """The reports so far, one for each live run."""

    reports: tuple[Report, ...] = ()


class Accepted(_Control, frozen=True, tag="accepted"):
    """The request was carried out and written down."""

    detail: str = ""


class Failed(_Control, frozen=True, tag="failed"):
    """The request was not understood, or there is no such run here (``no_such_run``)."""

    detail: str
    no_such_run: bool = False


Reply: TypeAlias = Pong | Step | Done | Statuses | Accepted | Failed
