"""Tracks what a run's output does to the terminal.

The output passes unchanged; this module only observes it.  The result tells if we can draw a line
of our own below the output, and what to restore if the run ended in the middle of a screen.
"""

import re
from collections.abc import Iterator
from typing import Final

# A terminal executes a control character inside a sequence, and the sequence goes on (DEC STD 070).
_C0: Final = rb"\x00-\x17\x19\x1c-\x1f"
_ESCAPE: Final = re.compile(
    rb"\x1b[%b]*(?:"
    rb"\[(?P<parameters>[0-?%b]*)(?P<between>[ -/%b]*)(?P<final>[@-~])"
    rb"|(?P<string>[\]PX^_])"
    rb"|(?P<prefix>[ -/%b]*)(?P<end>[0-OQ-WYZ\\`-~])"
    rb")" % ((_C0,) * 4)
)
_UNFINISHED: Final = re.compile(rb"\x1b[%b]*(?:\[[0-?%b]*)?[ -/%b]*\Z" % ((_C0,) * 3))
_CONTROLS: Final = bytes(range(32))
_STRING_END: Final = re.compile(rb"\x07|\x1b\\|[\x18\x1a]")
_MAX_SEQUENCE: Final = 256

_UNDO_MODES: Final = {
    # The alternate screen first: leaving it restores the cursor of the main screen.
    **{mode: b"\x1b[?%bl" % mode for mode in (b"1049", b"1047", b"47")},
    b"25": b"\x1b[?25h",  # a visible cursor
    b"7": b"\x1b[?7h",  # lines that wrap
    **{
        mode: b"\x1b[?%bl" % mode
        for mode in (
            *(b"1", b"5", b"6", b"69"),  # cursor keys, reverse video, origin, margins
            *(b"9", b"1000", b"1001", b"1002", b"1003"),  # what the mouse reports
            *(b"1005", b"1006", b"1015", b"1016"),  # how it reports
            *(b"1004", b"2004", b"2026"),  # focus, bracketed paste, frozen display
        )
    },
}
"""Private modes (DECSET) that must be reset at the end, each with the sequence that resets it."""
_NORMALLY_ON: Final = frozenset({b"7", b"25"})
_ALTERNATE: Final = frozenset({b"?1049", b"?1047", b"?47"})

_MOVES: Final = frozenset(b"ABEFHJLMSTdefku")
"""Final bytes of the sequences that move to other lines, or change them."""
_INVISIBLE: Final = frozenset(b"cghlmnpqstux")
"""Final bytes of the sequences that neither write anything nor move the cursor."""

# SGR parameters that turn an attribute on, each with the parameter that turns it off.
_ATTRIBUTES: Final = {
    **dict.fromkeys((1, 2), 22),
    3: 23,
    **dict.fromkeys((4, 21), 24),
    **dict.fromkeys((5, 6), 25),
    7: 27,
    8: 28,
    9: 29,
    53: 55,
    58: 59,
    **dict.fromkeys((*range(30, 39), *range(90, 98)), 39),
    **dict.fromkeys((*range(40, 49), *range(100, 108)), 49),
}


class PassingOutput:
    """The state of one terminal, derived from the bytes that go to it, in their order.

    ``blank``: the cursor is at the beginning of an empty line.  ``drives``: the run has moved the
    cursor over the screen; from then on the screen belongs to the run.
    """

    def __init__(self) -> None:
        self.blank = True
        self.drives = False
        self._rest = b""
        self._in_string = False
        self._attributes: set[int] = set()
        self._keyboards = 0
        self._undo: dict[bytes, bytes] = {}

    def __repr__(self) -> str:
        return f"<PassingOutput blank={self.blank} drives={self.drives} {list(self._undo)}>"

    @property
    def leaves_room(self) -> bool:
        """True if we can draw a line at the cursor and remove it again."""
        return self.blank and not self.drives and not self._attributes and self._between_sequences

    @property
    def _between_sequences(self) -> bool:
        return not self._rest and not self._in_string

    def see(self, data: bytes) -> None:
        """Update the state for *data*, which goes to the terminal now."""
        if self._between_sequences and b"\x1b" not in data:
            self._see_text(data)
            return
        for text, match in self._pieces(self._rest + data):
            self._see_text(text)
            if match is not None:
                self._see_sequence(match)

    def interrupt(self) -> bytes:
        """Return the bytes that make the terminal ready for a line of our own.

        They end a line of the run, and cancel an unfinished sequence, which would swallow our
        line.
        """
        # CAN, and ST for terminals without CAN.
        ready = b"" if self._between_sequences else b"\x18\x1b\\"
        self._rest, self._in_string = b"", False
        if self._attributes:
            self._attributes.clear()
            ready += b"\x1b[0m"
        if not self.blank:
            self.blank = True
            ready += b"\n"
        return ready

    def restore(self) -> bytes:
        """Return the bytes that restore the terminal; empty if the run changed nothing."""
        undo = [b"" if self._between_sequences else b"\x18\x1b\\"]
        self._rest, self._in_string = b"", False
        if _ALTERNATE & self._undo.keys():
            self.blank = False  # the content of the restored screen is unknown
        # In the order of the table, not in the order of the run's changes.
        undo += [self._undo.pop(b"?" + mode, b"") for mode in _UNDO_MODES]
        undo += self._undo.values()
        if self._keyboards > 0:
            undo.append(b"\x1b[<%du" % self._keyboards)
        if self._attributes:
            undo.append(b"\x1b[0m")
        self._undo.clear()
        self._attributes.clear()
        self._keyboards = 0
        return b"".join(undo)

    def _pieces(self, data: bytes) -> Iterator[tuple[bytes, re.Match[bytes] | None]]:
        """Yield pairs of text and the sequence after it; an unfinished sequence is kept."""
        self._rest = b""
        at = 0
        while at < len(data):
            if self._in_string:
                end = _STRING_END.search(data, at)
                if end is None:
                    # The terminator of the string may be split, too.
                    self._rest = b"\x1b" if data.endswith(b"\x1b") else b""
                    return
                self._in_string = False
                at = end.end()
                continue
            escape = data.find(b"\x1b", at)
            if escape < 0:
                yield data[at:], None
                return
            match = _ESCAPE.match(data, escape)
            if match is not None:
                yield data[at:escape], match
                at = match.end()
            elif len(data) - escape <= _MAX_SEQUENCE and _UNFINISHED.match(data, escape):
                yield data[at:escape], None
                self._rest = data[escape:]
                return
            else:
                yield data[at:escape], None
                at = escape + 1

    def _see_text(self, text: bytes) -> None:
        _, newline, after = text.rpartition(b"\n")
        if newline:
            self.blank = True
        if after.strip(b"\0\x07"):
            self.blank = False
        shifted_out, shifted_in = text.rfind(b"\x0e"), text.rfind(b"\x0f")
        if shifted_out > shifted_in:
            self._undo[b"shift"] = b"\x0f"
        elif shifted_in >= 0:
            self._undo.pop(b"shift", None)

    def _see_sequence(self, match: re.Match[bytes]) -> None:
        self._see_text(bytes(byte for byte in match[0][1:] if byte < 32))
        if match["string"] is not None:
            self._in_string = True
        elif match["final"] is not None:
            parameters = match["parameters"].translate(None, _CONTROLS)
            between = match["between"].translate(None, _CONTROLS)
            self._see_control(parameters, between, match["final"])
        else:
            self._see_escape(match["prefix"].translate(None, _CONTROLS), match["end"])

    def _see_escape(self, prefix: bytes, end: bytes) -> None:
        if prefix in (b"(", b")"):
            self._note(b"charset" + prefix, b"\x1b%bB" % prefix, end != b"B")
        elif end in b"=>":
            self._note(b"keypad", b"\x1b>", end == b"=")
        elif end in b"8DEMc":
            self.drives = True

    def _see_control(self, parameters: bytes, between: bytes, final: bytes) -> None:
        private = parameters[:1] if parameters[:1] in (b"<", b"=", b">", b"?") else b""
        match private, between, final:
            case b"?", b"", b"h" | b"l":
                for mode in parameters[1:].split(b";"):
                    self._set_mode(mode, on=final == b"h")
            case b"", b"", b"h" | b"l" if parameters == b"4":
                self._note(b"insert", b"\x1b[4l", final == b"h")
            case b"", b"", b"m":
                self._set_attributes(parameters)
            case b">", b"", b"m":
                self._note(b"keys", b"\x1b[>4m", parameters.startswith(b">4;"))
            case b">", b"", b"u":
                self._keyboards += 1
            case b"<", b"", b"u":
                self._keyboards = max(self._keyboards - _number(parameters[1:] or b"1"), 0)
            case b"", b"", b"r":
                # To set the region moves the cursor, so the cursor is saved and restored.
                self._note(b"region", b"\x1b7\x1b[r\x1b8", bool(parameters))
                self.drives = True
            case b"", b" ", b"q":
                self._note(b"cursor", b"\x1b[0 q", parameters not in (b"", b"0"))
            case b"", b"", _ if final[0] in _MOVES:
                self.drives = True
            case _ if final[0] not in _INVISIBLE:
                self.blank = False

    def _set_mode(self, mode: bytes, *, on: bool) -> None:
        if mode in _UNDO_MODES:
            self._note(b"?" + mode, _UNDO_MODES[mode], on != (mode in _NORMALLY_ON))
            self.drives = self.drives or b"?" + mode in _ALTERNATE

    def _set_attributes(self, parameters: bytes) -> None:
        numbers = iter([_number(part) for part in parameters.split(b";")])
        for number in numbers:
            if number == 0:
                self._attributes.clear()
            elif number in _ATTRIBUTES:
                self._attributes.add(_ATTRIBUTES[number])
            else:
                self._attributes.discard(number)
            if number in (38, 48, 58):
                # A colour follows: 5 and one number, or 2 and three.
                for _ in range({5: 1, 2: 3}.get(next(numbers, 0), 0)):
                    next(numbers, 0)

    def _note(self, what: bytes, undo: bytes, changed: bool) -> None:
        if changed:
            self._undo[what] = undo
        else:
            self._undo.pop(what, None)


def _number(text: bytes) -> int:
    text = text.partition(b":")[0]  # sub-parameters only refine the attribute
    return int(text) if text.isdigit() and len(text) < 6 else 0
