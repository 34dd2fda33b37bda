"""Describes the steps of a stop while they happen: one line for each rung of the ladder."""

import time
from collections.abc import Sequence
from typing import Final

from agentctl_protocol.control import Step
from agentctl_protocol.vocabulary import Rung
from agentctl_supervisor.cli.terminal.console import plain, width
from agentctl_supervisor.cli.terminal.remaining_processes import names
from agentctl_supervisor.text.durations import show_duration

_LINE_COLUMNS: Final = 80
_NO_ANSWER: Final = {
    "no": "no answer after {}",
    "no channel": "no channel to ask by",
    "asked for a call": "it asked for another call after {}",
}
_PHASES: Final = {Rung.ASKED: "asked to end", Rung.SIGTERM: "SIGTERM", Rung.SIGKILL: "SIGKILL"}


class Narrator:
    """A converter of the `Step` messages about one run into lines.

    The line of a rung says what is waited for, for how long at most, and for which processes.
    ``phase`` and ``until`` (a monotonic time) hold the same for a countdown.  ``phase`` is empty
    while nothing is waited for.
    """

    def __init__(self, name: str) -> None:
        self.name = plain(name)
        self.phase = ""
        self.until = 0.0
        self._since = time.monotonic()
        self._answer = ""

    def __repr__(self) -> str:
        return f"<Narrator of {self.name}>"

    def lines(self, step: Step, now: float, commands: Sequence[str] = ()) -> list[str]:
        """Return the lines about *step* at *now*; *commands* are the live processes, if known."""
        line = self.line(step, now)
        if not line or not commands or step.step is Rung.ASKED:
            return [line] if line else []
        below = names(commands, _LINE_COLUMNS - 2)
        if names(commands, _LINE_COLUMNS - width(line) - 2) == below:
            return [f"{line}: {below}"]
        return [f"{line}:", f"  {below}"]

    def line(self, step: Step, now: float) -> str:
        """Return the line for *step* at *now*, or an empty string."""
        if step.step is None:
            words = _NO_ANSWER.get(step.answered, "")
            self._answer = words.format(show_duration(now - self._since))
            return ""
        before, self._answer, self._since = self._answer, "", now
        self.phase, self.until = _PHASES[step.step], now + step.left_s
        prefix = f"{self.name}: " + (f"{before}; " if before else "")
        wait = f", waiting up to {show_duration(step.left_s)}" if step.left_s > 0 else ""
        if step.step is Rung.ASKED:
            return f"{prefix}asked to end{wait}" if step.left_s > 0 else ""
        least = "at least " if step.at_least else ""
        to = f" to {least}{count(step.processes)}" if step.processes else ""
        if step.step is Rung.SIGKILL:
            wait = ""
        return f"{prefix}{_PHASES[step.step]}{to}{wait}"


def count(processes: int) -> str:
    """Return text like ``1 process`` or ``4 processes``."""
    return f"{processes} {'process' if processes == 1 else 'processes'}"
