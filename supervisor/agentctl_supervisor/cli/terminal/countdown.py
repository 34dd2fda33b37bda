"""Shows what ``agentctl stop`` waits for: on a terminal, with a status line that counts down.

Several threads stop one run each.  Their lines are not mixed.  The status line below them shows the
run with the longest remaining wait.
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
    """A context manager that prints lines and, below them, a status line with the current wait.

    If stderr is not a terminal, it only prints lines.
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
        """Count down what *narrator* waits for, and name the processes that *onlooker* sees."""
        with self._lock:
            if self._screen is not None and not self._waits and not self._over.is_set():
                # If no thread can be started, there is no countdown.
                with contextlib.suppress(RuntimeError):
                    threading.Thread(target=self._tick, daemon=True).start()
            self._waits[narrator] = onlooker

    def done(self, narrator: Narrator) -> None:
        """End the countdown of *narrator*."""
        with self._lock:
            self._waits.pop(narrator, None)

    def say(self, line: str) -> None:
        """Print a permanent line on stderr."""
        with self._lock:
            self._hide()
            console.say(line)

    def out(self, line: str) -> None:
        """Print a line on stdout.

        Raises:
            OSError: the line could not be written.
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
    # Imported here: scripts have no terminal, and should not spend time on this import.
    from agentctl_supervisor.cli.terminal.screen import Screen

    return Screen()
