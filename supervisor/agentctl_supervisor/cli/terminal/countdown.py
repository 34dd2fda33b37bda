"""What ``agentctl stop`` shows while it waits: on a terminal, a line that counts down.

Several threads stop a run each.  Their lines come out whole, and the one below them is
about the run that has the longest to go.
"""

import contextlib
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from agentctl_supervisor.cli.terminal import console, status_line
from agentctl_supervisor.cli.terminal.remaining_processes import Onlooker
from agentctl_supervisor.cli.wording.narration import Narrator

if TYPE_CHECKING:
    from agentctl_supervisor.cli.terminal.screen import Screen

_TERMINAL_FD: Final = 2
_UPDATE_EVERY_S: Final = 0.25


class Countdown:
    """Says lines, and below them shows what is waited for.  Ends with its block.

    Where stderr is no terminal, it only says lines.
    """

    def __init__(self) -> None:
        self._screen = _screen() if console.is_terminal(_TERMINAL_FD) else None
        self._lock = threading.Lock()
        self._waits: dict[Narrator, Onlooker] = {}
        self._over = threading.Event()

    def __repr__(self) -> str:
        return f"<Countdown of {len(self._waits)} stops>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._over.set()
            if self._screen is not None:
                console.put(self._screen.end())

    def wait(self, narrator: Narrator, onlooker: Onlooker) -> None:
        """Count down what *narrator* waits for, and name whom *onlooker* sees."""
        with self._lock:
            if self._screen is not None and not self._waits and not self._over.is_set():
                # Where no thread is to be had, nothing is counted down.
                with contextlib.suppress(RuntimeError):
                    threading.Thread(target=self._tick, daemon=True).start()
            self._waits[narrator] = onlooker

    def done(self, narrator: Narrator) -> None:
        """Nothing is waited for any more."""
        with self._lock:
            self._waits.pop(narrator, None)

    def say(self, line: str) -> None:
        """A line on stderr, which stays."""
        with self._lock:
            self._hide()
            console.say(line)

    def out(self, line: str) -> None:
        """A line on stdout.

        Raises:
            OSError: it could not be written.
        """
        with self._lock:
            self._hide()
            console.out(line)

    def _hide(self) -> None:
        if self._screen is not None:
            console.put(self._screen.hide())

    def _tick(self) -> None:
        while not self._over.wait(_UPDATE_EVERY_S):
            with self._lock:
                waits = list(self._waits.items())
            for _, onlooker in waits:
                onlooker.look()
            with self._lock:
                if not self._waits:
                    return
                if not self._over.is_set():
                    self._show()

    def _show(self) -> None:
        assert self._screen is not None
        line, columns = "", console.screen_columns(_TERMINAL_FD)
        if console.in_foreground(_TERMINAL_FD):
            line = status_line.waiting(list(self._waits.items()), columns, time.monotonic())
        console.put(self._screen.status(console.status_bytes(line), columns))


def _screen() -> "Screen":
    # A script that stops runs spends no time on it.
    from agentctl_supervisor.cli.terminal.screen import Screen

    return Screen()
