"""What goes to a person's terminal, and never more than it should.

Names of processes, arguments, output and error texts come from code that nobody
trusts.  Nothing of them may move the cursor, change a title or hide a line.
"""

import os
import re
import stat
import sys
from typing import Final, TextIO

from agentctl_protocol.os_names import display

# CSI and OSC/DCS/APC/PM/SOS sequences (ECMA-48), then any other two-byte escape.
_ESCAPES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
    r"|\x1b[\]PX^_].*?(?:\x1b\\|\x07|\x9c|$)"
    r"|\x1b[ -/]*[0-~]?",
    re.DOTALL,
)


def plain(text: str) -> str:
    """*text* on one line: without control sequences, ``?`` for what a terminal could act upon.

    Bytes of names that are not UTF-8 are shown as such.
    """
    if text.isascii() and text.isprintable():
        return text
    text = display(text)
    text = _ESCAPES.sub("", text)
    return "".join(
        # Format characters (bidirectional overrides among them) are not printable either.
        " " if char in "\t\r\n" else char if char.isprintable() else "?"
        for char in text
    )


def width(text: str) -> int:
    """Columns that *text*, which is plain, takes on a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )


def clip(text: str, columns: int) -> str:
    """*text* made plain, cut to *columns* with ``...`` at the end if it was longer."""
    text = plain(text)
    if width(text) <= columns:
        return text
    room = max(columns - 3, 0)
    while width(text) > room:
        text = text[: room if len(text) > room else -1]
    return text + "..."[:columns]


def line_width() -> int:
    """Columns for a line: those of the terminal, but at most 80."""
    try:
        columns = os.get_terminal_size(1).columns
    except OSError:
        return 80
    return min(columns, 80) if columns >= 40 else 80


_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "faint": "2"}
_LABEL_COLOURS: Final = {"error": "red", "warning": "yellow", "hint": "cyan"}


def is_terminal(fd: int) -> bool:
    """Whether *fd* is a terminal that can move its cursor."""
    try:
        able = os.isatty(fd)
    except OSError:
        return False
    return able and os.environ.get("TERM", "dumb") != "dumb"


def wants_colour(fd: int) -> bool:
    """Whether text on *fd* may be coloured: on a terminal, unless the environment says else.

    ``NO_COLOR`` (no-color.org) comes before ``FORCE_COLOR``, which also reaches pipes.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return os.environ.get("FORCE_COLOR", "0") not in ("", "0") or is_terminal(fd)


def coloured(text: str, colour: str, fd: int = 2) -> str:
    """*text*, in *colour* where that is wanted on *fd*."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if wants_colour(fd) else text


def labelled(label: str, text: str) -> str:
    """``error: text`` and the like, for stderr, made plain."""
    return f"{coloured(label + ':', _LABEL_COLOURS[label])} {plain(text)}"


def screen_columns(fd: int) -> int:
    """Columns of the terminal *fd*; 80 where it does not say."""
    try:
        return os.get_terminal_size(fd).columns or 80
    except OSError:
        return 80


def same_device(one: int, other: int) -> bool:
    """Whether two descriptors are of one device, such as one terminal."""
    try:
        return os.fstat(one).st_rdev == os.fstat(other).st_rdev
    except OSError:
        return False


def same_file(one: int, other: int) -> bool:
    """Whether two descriptors are of one terminal, file or pipe."""
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False


def is_regular(fd: int) -> bool:
    """Whether *fd* is a regular file."""
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode)
    except OSError:
        return False


def in_foreground(fd: int) -> bool:
    """Whether we are the job that the terminal *fd* belongs to now."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        # Not our controlling terminal: there is no job control, and nobody to disturb.
        return True


def open_standard_streams() -> None:
    """Makes descriptors 0, 1 and 2 exist, and printing never fail for a character.

    A closed descriptor would be given to the first file that is opened: a log
    record would end up in what somebody takes for our output.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            # The lowest free number is taken, which is *fd*: those below it are open by now.
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def say(text: str) -> None:
    """Writes *text* and a newline to stderr at once; a stderr that is gone is no error.

    What we say there is never the reason for which a run is or is not stopped.
    """
    _write(sys.stderr, text + "\n")


def _write(stream: TextIO | None, text: str) -> None:
    try:
        if stream is not None:
            stream.write(text)
            stream.flush()
    except (OSError, ValueError):
        pass


def put(data: bytes) -> None:
    """Writes *data*, what `Screen` says, to stderr at once; a terminal that is gone is no error."""
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        pass


def encoded(text: str) -> bytes:
    """*text* as stderr has it."""
    encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
    return text.encode(encoding, "backslashreplace")


def status_bytes(line: str) -> bytes:
    """A status line for `Screen`."""
    return encoded(coloured(line, "faint")) if line else b""


def out(text: str) -> None:
    """Writes *text* and a newline to stdout.

    Raises:
        BrokenPipeError: nobody reads any more.
        OSError: it could not be written.
    """
    if sys.stdout is not None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def out_json(value: object) -> None:
    """Writes *value* to stdout as indented JSON."""
    from agentctl_supervisor.text.json_text import json_page

    out(json_page(value))
