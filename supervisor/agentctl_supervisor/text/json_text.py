r"""Writes JSON that is safe on a terminal: control and invisible characters become ``\uXXXX``.

The JSON standard demands the escape only for C0 controls.  It allows unescaped DEL, C1 controls,
line separators, bidirectional controls, tag characters and lone surrogates.  These can control
the terminal, or hide a part of the text from its reader.  All JSON that a command prints comes
from here.  A pipe gets the same bytes as a terminal, and decoding gives the same value.
"""

import re
from typing import Final

import msgspec

from agentctl_protocol.visible_text import is_visible
from agentctl_supervisor.filesystem.json_file import encode_json

_BEYOND_ASCII: Final = re.compile("[^ -~]")


def json_line(value: object) -> str:
    """Return *value* as JSON on one line."""
    text = encode_json(value).decode()
    if is_visible(text):
        return text
    # Invisible characters occur only inside JSON strings, where each can be escaped.
    return _BEYOND_ASCII.sub(_escaped_unless_visible, text)


def json_page(value: object) -> str:
    """Return *value* as indented JSON."""
    text = json_line(value)
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        import json

        return json.dumps(json.loads(text), indent=2)  # msgspec refuses lone surrogates


def _escaped_unless_visible(match: re.Match[str]) -> str:
    char = match[0]
    if is_visible(char):
        return char
    units = char.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
