"""Shows the processes of a run that are still alive, by their command lines from /proc."""

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Final

from agentctl_protocol.spawning import ProcessIdentity
from agentctl_supervisor.cli.terminal.console import clip, width

_NAMED: Final = 64
_GLANCE_S: Final = 0.2
_SHORTEST: Final = 12
_CLIPPED_TO: Final = (200, 48, 32, 24, 16, _SHORTEST)
"""The columns for each of several names: the largest number with which all of them fit."""


class Onlooker:
    """An observer of the processes that *members* lists.  It remembers the last look.

    ``commands`` holds a command line for each process that was alive (the first 64).  ``count`` is
    the number of processes.
    """

    def __init__(self, members: Callable[[], Sequence[ProcessIdentity]]) -> None:
        self._members = members
        self.commands: tuple[str, ...] = ()
        self.count = 0

    def __repr__(self) -> str:
        return f"<Onlooker of {self.count} processes>"

    def look(self) -> None:
        """Look now.  This may take long: a process can delay the kernel's answer about it."""
        # Imported here, where nothing waits for it: the stop has been requested before.
        from agentctl_supervisor.processes.process_tree import command_line

        found = self._members()
        named = [command_line(who.pid) for who in found[:_NAMED]]
        self.commands, self.count = tuple(_short(text) for text in named if text), len(found)

    def glance(self, count: int) -> None:
        """Look, unless the last look saw *count* processes; return within a fifth of a second."""
        if count == self.count:
            return
        from agentctl_supervisor.processes import process_tree  # noqa: F401 - not in that time

        thread = Thread(target=self.look, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return  # no thread can be started: the stop goes on without command lines
        thread.join(_GLANCE_S)

    def commands_of(self, count: int) -> tuple[str, ...]:
        """Return the command lines if they are those of *count* processes, else none."""
        return self.commands if count == self.count else ()


def _short(command: str) -> str:
    """Return *command* without the directories of its program and of absolute paths."""
    program, *arguments = command.split(" ")
    return " ".join([_last(program), *(_last(w) if w[:1] == "/" else w for w in arguments)])


def _last(path: str) -> str:
    return path.rpartition("/")[2] or path


def names(commands: Sequence[str], columns: int) -> str:
    """Return *commands* in at most *columns*, with equal ones counted.

    Example: ``python agent.py, sleep 60 (3)``.  Empty if there is no room for even one.
    """
    counted = Counter(commands).most_common()
    if not counted or columns < _SHORTEST:
        return ""
    if len(counted) == 1:  # the caller shows their number
        return clip(counted[0][0], columns)
    for each in _CLIPPED_TO:
        texts = [clip(text, each) + (f" ({n})" if n > 1 else "") for text, n in counted]
        line = ", ".join(texts)
        if width(line) <= columns:
            return line
    for shown in range(len(texts) - 1, 0, -1):
        more = sum(count for _, count in counted[shown:])
        line = f"{', '.join(texts[:shown])} and {more} more"
        if width(line) <= columns:
            return line
    return ""
