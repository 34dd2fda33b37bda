"""Shares one terminal between a run's output, our own lines, and one status line below them.

Pure: it returns the bytes, and the caller writes them in that order.  Bytes that belong together
come in one piece, so that nothing flickers.
"""

from typing import Final

from agentctl_supervisor.cli.terminal.output_passthrough import PassingOutput

_CLEAR: Final = b"\r\x1b[J"
_TO_THE_START: Final = b"\x1b[K\r"
"""The cursor stays at the beginning of the status line.  A terminal that is made narrower breaks
the line in two and keeps the cursor at the beginning.  So the whole line can be cleared."""


class Screen:
    """The content of one terminal.  The status line must be narrower than the terminal."""

    def __init__(self) -> None:
        self._passing = PassingOutput()
        self._status = b""
        self._drawn = b""
        self._columns = 0

    def __repr__(self) -> str:
        return f"<Screen {self._status!r} below {self._passing!r}>"

    def output(self, data: bytes) -> bytes:
        """Return *data* of the run unchanged, with the bytes that move the status line away."""
        cleared = self._clear()
        self._passing.see(data)
        return cleared + data + self._draw()

    def message(self, line: bytes) -> bytes:
        """Return the bytes for a permanent line of our own."""
        return b"".join((self._clear(), self._passing.interrupt(), line, b"\n", self._draw()))

    def status(self, line: bytes, columns: int = 0) -> bytes:
        """Show *line* as the status from now on; an empty line hides it.

        *columns* is the current width of the terminal.  If the width has changed, the terminal may
        have broken the old line in two.  Then the old line is cleared and not just overwritten:
        otherwise some terminals join the new line with the second half of the old one.
        """
        broken = columns != self._columns
        self._status, self._columns = line, columns
        return (self._clear() if broken or not line else b"") + self._draw()

    def hide(self) -> bytes:
        """Remove the status line until it is shown again."""
        return self._clear()

    def end(self) -> bytes:
        """Leave the terminal as a run that ended by itself would have left it."""
        self._status = b""
        cleared = self._clear()
        return cleared + self._passing.restore()

    def _clear(self) -> bytes:
        cleared = _CLEAR if self._drawn else b""
        self._drawn = b""
        return cleared

    def _draw(self) -> bytes:
        if self._status in (b"", self._drawn) or not self._passing.leaves_room:
            return b""
        self._drawn = self._status
        return self._status + _TO_THE_START
