"""Errors of the supervisor's side: one line for people, a hint, and an exit code.

The hierarchy has two levels.  Each error says whose action can fix it.  The outermost handler of
the command line prints ``error:`` and ``hint:`` and exits with ``exit_code``.
"""

import errno

from agentctl_protocol.errors import one_line
from agentctl_protocol.os_names import display
from agentctl_protocol.shared_counters import used_up
from agentctl_protocol.vocabulary import EXIT_NO_SUCH_RUN, EXIT_OWN_FAILURE, EXIT_USAGE


class AgentctlError(Exception):
    """An error to show to the user.  ``hint`` says what to do about it, or is empty.

    ``excerpt`` has lines that show the place of the error, each at most 78 columns wide.
    """

    exit_code: int = EXIT_OWN_FAILURE

    def __init__(self, text: str, hint: str = "", excerpt: tuple[str, ...] = ()) -> None:
        super().__init__(display(text))
        self.hint = display(hint)
        self.excerpt = tuple(map(display, excerpt))


def described(error: BaseException) -> str:
    """Return the class and text of *error* in one line; for a group, those of its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {one_line(error)}"


def in_words(error: OSError) -> str:
    """Return for people why the kernel refused to open a file."""
    if error.errno == errno.EAGAIN:
        # From open(2) with O_NONBLOCK on a regular file: fcntl(2), F_SETLEASE.
        return "another program holds a lease on it; try again"
    return error.strerror or str(error)


class UsageError(AgentctlError):
    """The request is not valid as it was written."""

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
    """A file of a run is not what agentctl wrote; the text says which file and why."""


class UnknownLogVersionError(DamagedRunError):
    """The log was written by a version of agentctl whose format this one does not know."""


class LogFullError(AgentctlError):
    """The log takes no more records: disk full, quota used up, or a failing disk.

    No record is written in part.
    """


class SpawnError(AgentctlError):
    """The run's processes could not be started."""


def cannot_start(error: OSError) -> SpawnError:
    """Return the error for a run whose resources the kernel refused; it names what is used up."""
    known = used_up(error.errno)
    return SpawnError(f"cannot start a run: {error.strerror}", f"used up: {known}" if known else "")


class SandboxUnavailableError(AgentctlError):
    """A requested protection is not available on this machine."""


class NotWaitingError(AgentctlError):
    """The run is not in the state that the request needs: no such call waits, or it is over."""

    exit_code = 1


class SupervisorGoneError(AgentctlError):
    """The supervisor of the run ended, or closed the connection, before it answered."""


class SupervisorStuckError(AgentctlError):
    """The supervisor of the run is alive and does not answer."""
