"""The end of what an agent streamed."""

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
        """Go on with *piece*."""
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length > 2 * MAX_TEXT or len(self._pieces) > MAX_PIECES:
            # Seldom enough that joining costs each piece next to nothing.
            self._pieces = [str(self)]
            self._length = len(self._pieces[0])

    def clear(self) -> None:
        """Begin another text."""
        self._pieces.clear()
        self._length = 0
