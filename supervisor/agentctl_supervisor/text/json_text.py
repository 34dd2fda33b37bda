r"""JSON that is safe to look at: what a terminal obeys, or nobody sees, is written as ``\uXXXX``.

JSON itself only demands that of the C0 controls.  DEL, C1 controls, line separators,
bidirectional controls, tag characters and lone surrogates may stand in it as they are, and
then drive the terminal that shows it or hide a part of it from its reader.  All JSON that a
command prints comes from here, to a pipe the same bytes as to a terminal; decoding it gives
the same value.
"""

import re
from typing import Final

import msgspec

from agentctl_protocol.visible_text import is_visible
from agentctl_supervisor.filesystem.json_file import encode_json

_BEYOND_ASCII: Final = re.compile("[^ -~]")


def json_line(value: object) -> str:
    """*value* as JSON on one line."""
    text = encode_json(value).decode()
    if is_visible(text):
        return text
    # What is not visible can only stand inside of strings, where each has an escape.
    return _BEYOND_ASCII.sub(_escaped_unless_visible, text)


def json_page(value: object) -> str:
    """*value* as indented JSON."""
    text = json_line(value)
    try:
        return msgspec.json.format(text, indent=2)
    except msgspec.DecodeError:
        import json

        return json.dumps(json.loads(text), indent=2)  # a lone surrogate, which msgspec refuses


def _escaped_unless_visible(match: re.Match[str]) -> str:
    char = match[0]
    if is_visible(char):
        return char
    units = char.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
