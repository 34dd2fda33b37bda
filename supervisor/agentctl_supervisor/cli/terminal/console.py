"""Prints text on the user's terminal, made harmless first.

Process names, arguments, output and error texts come from untrusted code.  They must not move the
cursor, change a title or hide a line.
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
    """Return *text* on one line, without control sequences; ``?`` replaces control characters.

    Bytes of names that are not UTF-8 are shown as bytes.
    """
    if text.isascii() and text.isprintable():
        return text
    text = display(text)
    text = _ESCAPES.sub("", text)
    return "".join(
        # Format characters, such as bidirectional overrides, are not printable either.
        " " if char in "\t\r\n" else char if char.isprintable() else "?"
        for char in text
    )


def width(text: str) -> int:
    """Return the number of columns that *text*, made by `plain`, takes on a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width

    return sum(
        0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text
    )


def clip(text: str, columns: int) -> str:
    """Return *text* made plain and cut to *columns*, with ``...`` at the end if it was longer."""
    text = plain(text)
    if width(text) <= columns:
        return text
    room = max(columns - 3, 0)
    while width(text) > room:
        text = text[: room if len(text) > room else -1]
    return text + "..."[:columns]


def line_width() -> int:
    """Return the columns for a line: those of the terminal, but at most 80."""
    try:
        columns = os.get_terminal_size(1).columns
    except OSError:
        return 80
    return min(columns, 80) if columns >= 40 else 80


_COLOURS: Final = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "faint": "2"}
_LABEL_COLOURS: Final = {"error": "red", "warning": "yellow", "hint": "cyan"}


def is_terminal(fd: int) -> bool:
    """Return True if *fd* is a terminal that can move its cursor."""
    try:
        able = os.isatty(fd)
    except OSError:
        return False
    return able and os.environ.get("TERM", "dumb") != "dumb"


def wants_colour(fd: int) -> bool:
    """Return True if text on *fd* may be coloured: on a terminal, unless a variable overrides it.

    ``NO_COLOR`` (no-color.org) has priority over ``FORCE_COLOR``, which also applies to pipes.
    """
    if os.environ.get("NO_COLOR"):
        return False
    return os.environ.get("FORCE_COLOR", "0") not in ("", "0") or is_terminal(fd)


def coloured(text: str, colour: str, fd: int = 2) -> str:
    """Return *text*, in *colour* if colours are wanted on *fd*."""
    return f"\x1b[{_COLOURS[colour]}m{text}\x1b[0m" if wants_colour(fd) else text


def labelled(label: str, text: str) -> str:
    """Return a line like ``error: text`` for stderr; *text* is made plain."""
    return f"{coloured(label + ':', _LABEL_COLOURS[label])} {plain(text)}"


def screen_columns(fd: int) -> int:
    """Return the columns of the terminal *fd*; 80 if they are not known."""
    try:
        return os.get_terminal_size(fd).columns or 80
    except OSError:
        return 80


def same_device(one: int, other: int) -> bool:
    """Return True if two descriptors are of the same device, such as a terminal."""
    try:
        return os.fstat(one).st_rdev == os.fstat(other).st_rdev
    except OSError:
        return False


def same_file(one: int, other: int) -> bool:
    """Return True if two descriptors are of the same terminal, file or pipe."""
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False


def is_regular(fd: int) -> bool:
    """Return True if *fd* is a regular file."""
    try:
        return stat.S_ISREG(os.fstat(fd).st_mode)
    except OSError:
        return False


def in_foreground(fd: int) -> bool:
    """Return True if our process group is the foreground job of the terminal *fd*."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        # Not our controlling terminal: there is no job control, and we disturb no other job.
        return True


def open_standard_streams() -> None:
    """Make sure that descriptors 0, 1 and 2 exist, and that every character can be printed.

    The first file that is opened would get the number of a closed descriptor.  Then, for example,
    our output could go into a log file.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            # The kernel gives the lowest free number.  That is *fd*: the numbers below are open.
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def say(text: str) -> None:
    """Write *text* and a newline to stderr at once; a closed stderr is not an error.

    A message must never decide if a run is stopped or not.
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
    """Write *data*, made by `Screen`, to stderr at once; a closed terminal is not an error."""
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:
        pass


def encoded(text: str) -> bytes:
    """Return *text* in the encoding of stderr."""
    encoding = "utf-8" if sys.stderr is None else sys.stderr.encoding
    return text.encode(encoding, "backslashreplace")


def status_bytes(line: str) -> bytes:
    """Return *line* as a status line for `Screen`."""
    return encoded(coloured(line, "faint")) if line else b""


def out(text: str) -> None:
    """Write *text* and a newline to stdout.

    Raises:
        BrokenPipeError: the reader is gone.
        OSError: *text* could not be written.
    """
    if sys.stdout is not None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def out_json(value: object) -> None:
    """Write *value* to stdout as indented JSON."""
    from agentctl_supervisor.text.json_text import json_page

    out(json_page(value))
