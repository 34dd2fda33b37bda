"""Runs the ``agentctl`` command.

`main` never shows a traceback to the user, unless AGENTCTL_DEBUG is set.  It imports only what the
command needs: ``stop`` must work at once, even on a machine that a runaway agent has slowed down.
"""

import argparse
import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

from agentctl_protocol.spec import SpecError
from agentctl_supervisor.cli import arguments
from agentctl_supervisor.cli.terminal import console
from agentctl_supervisor.errors import AgentctlError, UsageError

_EXIT_PIPE: Final = 128 + 13  # as if SIGPIPE had ended us, like every other filter
_EXIT_INTERRUPTED: Final = 130


def main(argv: Sequence[str] | None = None, *, ready: Callable[[], None] = lambda: None) -> int:
    """Run the command line *argv* (default: that of this process) and return its exit code.

    *ready* is called after everything is loaded, just before the command starts.
    """
    console.open_standard_streams()
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv), ready)
        _flush_stdout()
        return code
    except AgentctlError as error:
        tell_error(error)
        return error.exit_code
    except BrokenPipeError:
        _give_up_stdout()
        return _EXIT_PIPE
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line of defence
        if _was_interrupted(error):
            return _EXIT_INTERRUPTED
        if os.environ.get("AGENTCTL_DEBUG"):
            _tell_traceback(error)
        if isinstance(error, OSError):
            _give_up_stdout()
        told = _translated(error)
        tell_error(told)
        return told.exit_code


def _tell_traceback(error: Exception) -> None:
    """Print a traceback that is safe on a terminal: an error may quote text of an agent."""
    import traceback

    for line in "".join(traceback.format_exception(error)).splitlines():
        console.say(console.plain(line))


def _was_interrupted(error: BaseException | None) -> bool:
    """Return True if a Ctrl-C caused *error*.

    Until Python 3.12, a Ctrl-C while a class is created becomes another exception.
    """
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _flush_stdout() -> None:
    """Flush stdout now, while an error can still set our exit code."""
    if sys.stdout is not None:  # None: we were started without one
        sys.stdout.flush()


def _give_up_stdout() -> None:
    """Discard what stdout still buffers and cannot write.

    Otherwise the interpreter would report an error at exit.
    """
    try:
        _flush_stdout()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _dispatch(argv: list[str], ready: Callable[[], None]) -> int:
    command, options = arguments.parse(argv)
    run = _loaded(command)
    ready()
    if run is not None:
        return run(options)
    console.out(arguments.text_for(command, options))
    return 0


def _loaded(command: str) -> Callable[[argparse.Namespace], int] | None:
    """Return the function that executes *command*; None for ``help`` and ``version``."""
    match command:
        case "run":
            from agentctl_supervisor.cli.commands import run as run_command

            return run_command.run
        case "stop" | "kill":
            from agentctl_supervisor.cli.commands import stop as stop_command

            return functools.partial(stop_command.run, kill=command == "kill")
        case "ps":
            from agentctl_supervisor.cli.commands import ps as ps_command

            return ps_command.run
        case "show":
            from agentctl_supervisor.cli.commands import show as show_command

            return show_command.run
        case _ if command in arguments.MODULES:
            run: Callable[[argparse.Namespace], int] = import_module(arguments.MODULES[command]).run
            return run
        case _:
            return None


def tell_error(error: AgentctlError) -> None:
    """Print *error* on stderr: what is wrong, and what to do about it."""
    for line in error_lines(error):
        console.say(line)


def error_lines(error: AgentctlError) -> list[str]:
    """Return the lines that `tell_error` prints."""
    hint = error.hint or ("agentctl help" if isinstance(error, UsageError) else "")
    lines = [console.labelled("error", str(error))]
    lines += [f"  {console.plain(line)}" for line in error.excerpt]
    return [*lines, console.labelled("hint", hint)] if hint else lines


def _translated(error: Exception) -> AgentctlError:
    hint = "AGENTCTL_DEBUG=1 in the environment shows the traceback"
    if isinstance(error, SpecError):
        return UsageError(str(error), hint=error.hint)
    if isinstance(error, OSError) and error.strerror:
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        return AgentctlError(f"{where}{error.strerror}", hint=hint)
    return AgentctlError(f"unexpected {type(error).__name__}: {error}", hint=hint)
