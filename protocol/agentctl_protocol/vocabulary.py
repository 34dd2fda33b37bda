"""The words of the project: states, results, reasons, rungs.

The lists are closed and frozen: a word is added, never renamed or reused. They appear on the wire,
in the log, in JSON output and in exit codes.
"""

import enum
import signal
from typing import Final


class State(enum.StrEnum):
    """The stage of a run's life. How a finished run ended is its `Result`."""

    STARTING = "starting"
    RUNNING = "running"
    WAITING = "waiting"  # for a person's approval of a call
    STOPPING = "stopping"
    FINISHED = "finished"


class Result(enum.StrEnum):
    """The outcome of a finished run."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"  # a person or program asked for it
    LIMIT = "limit"  # a hard limit ended it
    TERMINATED = "terminated"  # a termination condition ended it
    LOST = "lost"  # its supervisor died first
    REFUSED = "refused"  # it never started


class Reason(enum.StrEnum):
    """The reason for a run's result: a closed list of codes.

    The sentence for people is ``detail``.
    """

    USER = "user"
    CLIENT = "client"
    TIME = "time"
    CPU = "cpu"
    MEMORY = "memory"
    PIDS = "pids"
    OUTPUT = "output"
    DISK = "disk"
    IDLE = "idle"
    EVENTS = "events"
    CALLS = "calls"
    TOKENS = "tokens"
    CONDITION = "condition"
    EXIT = "exit"
    SIGNAL = "signal"
    EXCEPTION = "exception"
    PROTOCOL = "protocol"
    SANDBOX = "sandbox"
    NOT_FOUND = "not_found"
    NOT_EXECUTABLE = "not_executable"
    SUPERVISOR_DIED = "supervisor_died"
    SUPERVISOR_EXIT = "supervisor_exit"
    INTERNAL = "internal"


class Rung(enum.StrEnum):
    """A step of the stop ladder, in the order of their use."""

    ASKED = "asked"
    SIGTERM = "sigterm"
    SIGKILL = "sigkill"


class Sandbox(enum.StrEnum):
    """The levels of a run's confinement, the strongest first."""

    STRICT = "strict"  # a view of its own: namespaces, own root, Landlock, seccomp; the default
    STANDARD = "standard"  # Landlock and seccomp, if there are no namespaces
    BASIC = "basic"  # containment and limits
    NONE = "none"  # only the unsealed subreaper fallback: for debugging


CONFINED: Final = (Sandbox.STRICT, Sandbox.STANDARD)
"""The levels at which a run has a policy: what it sees, reaches and knows."""


class Network(enum.StrEnum):
    """The part of the network that a run reaches."""

    NONE = "none"  # strict: its own loopback; standard: no socket but pairs
    HOST = "host"


class Containment(enum.StrEnum):
    """The mechanism that holds a run's process tree together."""

    PID_NAMESPACE = "pid-namespace"
    SUBREAPER = "subreaper"


class By(enum.IntEnum):
    """The source of a log record. What the child says is a claim, never a fact."""

    SUPERVISOR = 0
    CHILD = 1


LIMIT_REASONS: Final = frozenset(
    {
        Reason.TIME,
        Reason.CPU,
        Reason.MEMORY,
        Reason.PIDS,
        Reason.OUTPUT,
        Reason.DISK,
        Reason.IDLE,
        Reason.EVENTS,
        Reason.CALLS,
        Reason.TOKENS,
    }
)

#: Limits that need an immediate kill: asking first would only make it worse.
KILL_AT_ONCE: Final = frozenset({Reason.MEMORY, Reason.PIDS, Reason.DISK})

# Exit codes of `agentctl run` for runs that did not end by themselves. 124-127 are those of GNU
# timeout, docker and the shells.
EXIT_OK: Final = 0
EXIT_USAGE: Final = 2
EXIT_LIMIT: Final = 124
EXIT_OWN_FAILURE: Final = 125
EXIT_NOT_EXECUTABLE: Final = 126
EXIT_NOT_FOUND: Final = 127
EXIT_INTERRUPTED: Final = 128 + signal.SIGINT
EXIT_STOPPED: Final = 128 + signal.SIGTERM
EXIT_KILLED: Final = 128 + signal.SIGKILL
# Exit codes of `agentctl stop` and `kill`.
EXIT_SURVIVORS: Final = 1
EXIT_NO_SUCH_RUN: Final = 4
