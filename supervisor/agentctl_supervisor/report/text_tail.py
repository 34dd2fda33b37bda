"""Keeps the end of the text that an agent streamed."""

from typing import Final

MAX_TEXT: Final = 1 << 20
MAX_PIECES: Final = 1 << 13


class TextTail:
    """The last `MAX_TEXT` characters of a text that comes in pieces."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0

    def __str__(self) -> str:
        return "".join(self._pieces)[-MAX_TEXT:]

    def add(self, piece: str) -> None:
        """Append *piece*."""
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length > 2 * MAX_TEXT or len(self._pieces) > MAX_PIECES:
            # Joining is so rare that it costs almost nothing per piece.
            self._pieces = [str(self)]
            self._length = len(self._pieces[0])

    def clear(self) -> None:
        """Discard the text and begin a new one."""
        self._pieces.clear()
        self._length = 0
