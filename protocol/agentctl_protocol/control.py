"""What a client says to a supervisor over its control socket.

Same framing as the channel.  `Ping`, `Stop` and `Kill` and their answers are
frozen: any version of the command line stops any version of a supervisor.
One request per connection; the answer to a stop is a stream that ends with
`Done` or `Failed`.  Closing the connection never undoes or hastens a stop.
"""

from typing import Annotated, Final, TypeAlias

import msgspec

from agentctl_protocol.messages import Seconds
from agentctl_protocol.report import Report
from agentctl_protocol.vocabulary import Rung

CONTROL_VERSION: Final = 1
#: No answer to a ping within this many seconds: the supervisor is stuck, and others may act.
PING_TIMEOUT_S: Final = 0.5

#: A frame may carry a whole report, whose text, value and checkpoint are up to 1 MiB each.
MAX_CONTROL_FRAME: Final = 16 << 20

_Text = Annotated[str, msgspec.Meta(max_length=4096)]
_Number = Annotated[int, msgspec.Meta(ge=0)]


class _Control(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """A control message."""


class Ping(_Control, frozen=True, tag="ping"):
    """Are you there?"""


class StopRequest(_Control, frozen=True, tag="stop"):
    """Stop this run and tell me how it goes.  Graces of None are those of the run."""

    run: _Text
    grace_s: Seconds | None = None
    term_grace_s: Seconds | None = None
    reason: _Text = ""


class KillRequest(_Control, frozen=True, tag="kill"):
    """SIGKILL this run's whole tree now."""

    run: _Text
    reason: _Text = ""


class StatusRequest(_Control, frozen=True, tag="status"):
    """What is known of this run, or (empty) of all live runs here.

    ``brief``: without what an agent can make long (`Report.brief`).
    """

    run: _Text = ""
    brief: bool = False


class VerdictRequest(_Control, frozen=True, tag="verdict"):
    """A person's verdict on a call of this run that waits for one.  ``why``: if refused.

    The call is that with this ``number``; with ``up_to``, all that wait and have no higher
    number are meant; with neither, that whose id the agent calls ``call``.
    """

    run: _Text
    call: _Text
    granted: bool
    why: _Text = ""
    number: _Number = 0
    up_to: _Number = 0


class SignalRequest(_Control, frozen=True, tag="signal"):
    """Fire the run's ``external()`` termination condition."""

    run: _Text


Request: TypeAlias = (
    Ping | StopRequest | KillRequest | StatusRequest | VerdictRequest | SignalRequest
)


class Pong(_Control, frozen=True, tag="pong"):
    """Yes."""

    version: int = CONTROL_VERSION
    pid: int = 0


class Step(_Control, frozen=True, tag="step"):
    """The ladder moved.  ``answered`` is how the step before it ended, when ``step`` is None.

    ``at_least``: there are more than ``processes`` says.
    """

    step: Rung | None = None
    answered: str = ""
    processes: int = 0
    left_s: float = 0.0
    at_least: bool = False


class Done(_Control, frozen=True, tag="done"):
    """The run is over.  ``already``: it was before this request."""

    report: Report
    already: bool = False


class Statuses(_Control, frozen=True, tag="statuses"):
    """Reports so far, one a live run."""

    reports: tuple[Report, ...] = ()


class Accepted(_Control, frozen=True, tag="accepted"):
    """It was done, and written down."""

    detail: str = ""


class Failed(_Control, frozen=True, tag="failed"):
    """The request was not understood, or there is no such run here (``no_such_run``)."""

    detail: str
    no_such_run: bool = False


Reply: TypeAlias = Pong | Step | Done | Statuses | Accepted | Failed
