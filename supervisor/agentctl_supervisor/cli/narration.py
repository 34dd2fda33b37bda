"""Tells people about a ladder while it is being climbed, a line a rung."""

import time
from typing import Final

from agentctl_protocol.control import Step
from agentctl_protocol.vocabulary import Rung
from agentctl_supervisor.cli.durations import show_duration
from agentctl_supervisor.cli.terminal import plain, say

_NO_ANSWER: Final = {
    "no": "no answer after {}",
    "no channel": "it has no channel to be asked by",
    "asked for a call": "it asked for another call after {}",
}


class Narrator:
    """Turns `Step` messages about one run into lines on stderr.

    A rung's line is written the moment the rung is taken, so that whoever waits
    sees what for, and for how long at most.
    """

    def __init__(self, name: str, *, quiet: bool = False) -> None:
        self._name = plain(name)
        self._quiet = quiet
        self._since = time.monotonic()
        self._answer = ""

    def __repr__(self) -> str:
        return f"<Narrator of {self._name}>"

    def __call__(self, step: Step) -> None:
        """Tells *step*."""
        line = self.line(step, time.monotonic())
        if line and not self._quiet:
            say(line)

    def line(self, step: Step, now: float) -> str:
        """The line for *step* at *now*, or nothing yet."""
        if step.step is None:
            words = _NO_ANSWER.get(step.answered, "")
            self._answer = words.format(show_duration(now - self._since))
            return ""
        before, self._answer, self._since = self._answer, "", now
        prefix = f"{self._name}: " + (f"{before}; " if before else "")
        wait = f", waiting up to {show_duration(step.left_s)}" if step.left_s > 0 else ""
        if step.step is Rung.ASKED:
            return f"{prefix}asked to end{wait}" if step.left_s > 0 else ""
        noun = "process" if step.processes == 1 else "processes"
        to = f" to {step.processes} {noun}" if step.processes else ""
        if step.step is Rung.SIGKILL:
            wait = ""
        return f"{prefix}{step.step.upper()}{to}{wait}"
