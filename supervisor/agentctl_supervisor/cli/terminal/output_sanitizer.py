"""Makes a run's output safe for a terminal: only text and colours remain.

An agent's output may arrive in pieces of any size.  So each stream has its own filter, which keeps
an unfinished sequence back.  The size of what it keeps is limited.
"""

import codecs
import re
from typing import Final

# ECMA-48: CSI and the strings (OSC, DCS, APC, PM, SOS), each in the 7-bit and the C1 form, then any
# other escape.  A string also ends at the end of its line, so that it cannot hide another line.
_SEQUENCE: Final = re.compile(
    r"(?:\x1b\[|\x9b)(?P<parameters>[0-?]*)(?P<between>[ -/]*)(?P<final>[@-~])"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x18\x1a\x1b\x9c\n]*"
    r"(?:\x07|\x18|\x1a|\x9c|\x1b\\|(?=[\n\x1b]))"
    r"|\x1b[ -/]*[0-~]"
)
_UNFINISHED: Final = re.compile(
    r"(?:(?:\x1b\[|\x9b)[0-?]*[ -/]*"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x18\x1a\x1b\x9c\n]*\x1b?"
    r"|\x1b[ -/]*)\Z"
)
_MAX_SEQUENCE: Final = 1 << 16
_COLOUR: Final = re.compile(r"[0-9;:]*")
_RESET: Final = "\x1b[0m"


class HarmlessOutput:
    """A filter that turns the bytes of one stream into text that is safe on a terminal.

    *colours*: keep the sequences that set colours and weights (SGR), and reset them at the `end`.
    A carriage return becomes a newline, because it could hide the text before it.
    """

    def __init__(self, *, colours: bool) -> None:
        self._colours = colours
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = ""
        self._after_return = False
        self._coloured = False

    def __repr__(self) -> str:
        return f"<HarmlessOutput {len(self._kept)} characters kept>"

    def feed(self, data: bytes) -> str:
        """Take *data*; return the text that can be shown now."""
        return self._show(self._kept + self._decoder.decode(data))

    def end(self) -> str:
        """Return the rest, at the end of the stream."""
        text = self._show(self._kept + self._decoder.decode(b"", final=True), final=True)
        return text + (_RESET if self._coloured else "")

    def _show(self, text: str, *, final: bool = False) -> str:
        self._kept = ""
        if "\x1b" not in text and text.isprintable():
            self._after_return = self._after_return and not text
            return text
        if (tail := _UNFINISHED.search(text)) is not None:
            if not final and len(text) - tail.start() <= _MAX_SEQUENCE:
                self._kept = text[tail.start() :]
            text = text[: tail.start()]
        pieces: list[str] = []
        at = 0
        for match in _SEQUENCE.finditer(text):
            pieces.append(self._plain(text[at : match.start()]))
            if self._is_colour(match):
                parameters = match["parameters"]
                self._coloured = parameters.strip("0;:") != ""
                pieces.append(f"\x1b[{parameters}m")
            at = match.end()
        pieces.append(self._plain(text[at:]))
        return "".join(pieces)

    def _is_colour(self, match: re.Match[str]) -> bool:
        return (
            self._colours
            and match["final"] == "m"
            and not match["between"]
            and _COLOUR.fullmatch(match["parameters"]) is not None
        )

    def _plain(self, text: str) -> str:
        if not text:
            return text
        if self._after_return and text[0] == "\n":
            text = text[1:]  # the carriage return has already ended the line
        self._after_return = text.endswith("\r")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if text.isprintable():
            return text
        return "".join(
            char if char.isprintable() or char in "\n\t" else "?"
            for char in text
            if char not in "\x07\x08\x1b"
        )
