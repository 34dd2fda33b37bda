"""Tells people about a ladder while it is being climbed: a line a rung, in words and times."""

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
    """Turns the `Step` messages about one run into lines.

    A rung's line says what is waited for, for how long at most, and for whom.  ``phase``
    and ``until`` (a monotonic time) tell the same to whoever counts down; the phase is
    empty while nothing is waited for.
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
        """What there is to say about *step* at *now*; *commands* are who is alive, if known."""
        line = self.line(step, now)
        if not line or not commands or step.step is Rung.ASKED:
            return [line] if line else []
        below = names(commands, _LINE_COLUMNS - 2)
        if names(commands, _LINE_COLUMNS - width(line) - 2) == below:
            return [f"{line}: {below}"]
        return [f"{line}:", f"  {below}"]

    def line(self, step: Step, now: float) -> str:
        """The line for *step* at *now*, or nothing yet."""
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
    """``1 process``, ``4 processes``."""
    return f"{processes} {'process' if processes == 1 else 'processes'}"
