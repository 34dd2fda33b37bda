"""Errors of the supervisor's side: one line for people, a hint, and an exit code.

Two levels and no more.  Each error says whose action can mend it; the command
line's last line of defence prints ``error:`` and ``hint:`` and leaves with ``exit_code``.
"""

import errno

from agentctl_protocol.errors import one_line
from agentctl_protocol.os_names import display
from agentctl_protocol.shared_counters import used_up
from agentctl_protocol.vocabulary import EXIT_NO_SUCH_RUN, EXIT_OWN_FAILURE, EXIT_USAGE


class AgentctlError(Exception):
    """Something that a person should read.  ``hint`` says what to do about it, or is empty.

    ``excerpt``: lines that show where, each at most 78 columns wide.
    """

    exit_code: int = EXIT_OWN_FAILURE

    def __init__(self, text: str, hint: str = "", excerpt: tuple[str, ...] = ()) -> None:
        super().__init__(display(text))
        self.hint = display(hint)
        self.excerpt = tuple(map(display, excerpt))


def described(error: BaseException) -> str:
    """What *error* says, in one line with its class; of a group, its first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {one_line(error)}"


def in_words(error: OSError) -> str:
    """Why the kernel refused a file, for people."""
    if error.errno == errno.EAGAIN:
        # Of open(2) with O_NONBLOCK on a regular file: fcntl(2), F_SETLEASE.
        return "another program holds a lease on it; try again"
    return error.strerror or str(error)


class UsageError(AgentctlError):
    """The request makes no sense as it was written."""

    exit_code = EXIT_USAGE


class NoSuchRunError(AgentctlError):
    """No run has this name, id or prefix."""

    exit_code = EXIT_NO_SUCH_RUN


class AmbiguousRunError(AgentctlError):
    """The prefix fits more than one run."""

    exit_code = EXIT_USAGE


class NameInUseError(AgentctlError):
    """A live run has this name already."""


class StateDirectoryError(AgentctlError):
    """The directory for runs or sockets cannot be used."""


class DamagedRunError(AgentctlError):
    """A file of a run is not what was written; the text says which file and why."""


class UnknownLogVersionError(DamagedRunError):
    """The log was written by a version of agentctl whose format this one does not know."""


class LogFullError(AgentctlError):
    """The log takes no more: disk full, quota used up, a failing disk.  Nothing is half written."""


class SpawnError(AgentctlError):
    """The run's processes could not be made."""


def cannot_start(error: OSError) -> SpawnError:
    """What to say when the kernel gave us something less than a run needs: what is used up."""
    known = used_up(error.errno)
    return SpawnError(f"cannot start a run: {error.strerror}", f"used up: {known}" if known else "")


class SandboxUnavailableError(AgentctlError):
    """A protection that was asked for is not to be had on this machine."""


class NotWaitingError(AgentctlError):
    """The run is not in the state that the request is about: no such call waits, it is over."""

    exit_code = 1


class SupervisorGoneError(AgentctlError):
    """The supervisor of the run ended, or closed the connection, before it answered."""


class SupervisorStuckError(AgentctlError):
    """The supervisor of the run is alive and does not answer."""
