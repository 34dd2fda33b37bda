"""One terminal shared by a run's output, our own lines, and one status line below them.

Pure: it says which bytes to write, and somebody else writes them in that order.
Everything that belongs together comes in one piece, so that nothing flickers.
"""

from typing import Final

from agentctl_supervisor.cli.terminal.output_passthrough import PassingOutput

_CLEAR: Final = b"\r\x1b[J"
_TO_THE_START: Final = b"\x1b[K\r"
"""The cursor rests where the status line begins: a terminal that is made narrower breaks the
line in two and keeps the cursor at its beginning, so that all of it is found and cleared."""


class Screen:
    """Keeps track of one terminal.  The status line must be narrower than that is."""

    def __init__(self) -> None:
        self._passing = PassingOutput()
        self._status = b""
        self._drawn = b""
        self._columns = 0

    def __repr__(self) -> str:
        return f"<Screen {self._status!r} below {self._passing!r}>"

    def output(self, data: bytes) -> bytes:
        """Pass *data* of the run on, byte for byte, with the status line out of its way."""
        cleared = self._clear()
        self._passing.see(data)
        return cleared + data + self._draw()

    def message(self, line: bytes) -> bytes:
        """A line of our own, which stays."""
        return b"".join((self._clear(), self._passing.interrupt(), line, b"\n", self._draw()))

    def status(self, line: bytes, columns: int = 0) -> bytes:
        """Show *line* as the status from now on; an empty one hides it.

        *columns* is how wide the terminal is now.  Where that has changed, the old line may
        have been broken in two, and is not written over but cleared first: otherwise some
        terminals take the new one for the beginning of its second half.
        """
        broken = columns != self._columns
        self._status, self._columns = line, columns
        return (self._clear() if broken or not line else b"") + self._draw()

    def hide(self) -> bytes:
        """Take the status line away until it is shown again."""
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
