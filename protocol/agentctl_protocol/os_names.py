r"""The names that the operating system knows: paths, arguments, variables. They are bytes.

Linux accepts any bytes but NUL as a name. Python holds such a name as a str with surrogates in
place of what is not text (PEP 383). UTF-8, and so JSON and msgpack, can represent neither. There
are three forms, and each place of the code uses exactly one of them:

* *native*: as Python holds it, fit for the functions of `os`;
* *text*: as it is sent, logged and stored. A byte that is not UTF-8 is NUL and two hex digits
  (``jos\0e9`` in place of ``jos\xe9``). No name holds a NUL, so this is reversible and leaves every
  other name unchanged. A reader that does not know this form cannot mistake it for another name:
  Linux refuses it;
* *display*: for people. Such a byte is a backslash, ``x`` and two hex digits.
"""

import os
import re
from typing import Final

_ESCAPED: Final = re.compile("\0([89a-f][0-9a-f])")
_NOT_TEXT: Final = re.compile("[\udc80-\udcff]")
_LONE: Final = re.compile("[\ud800-\udfff]")


def to_text(name: str | bytes) -> str:
    """Return the text form of *name*, which is native or bytes.

    Raises:
        UnicodeEncodeError: it is a str that stands for no bytes.
    """
    if isinstance(name, str) and name.isascii():
        return name
    text = os.fsencode(name).decode("utf-8", "surrogateescape")
    return _NOT_TEXT.sub(lambda byte: f"\0{ord(byte[0]) & 0xFF:02x}", text)


def to_bytes(text: str) -> bytes:
    """Return the bytes of the name that *text* stands for.

    Raises:
        ValueError: it stands for none, or for a name that has another text form.
    """
    name = _ESCAPED.sub(lambda byte: chr(0xDC00 + int(byte[1], 16)), text)
    raw = name.encode("utf-8", "surrogateescape")
    if "\0" in text and (b"\0" in raw or to_text(raw) != text):
        raise ValueError(f"not a name: {text[:80]!r}")
    return raw


def to_native(text: str) -> str:
    """Return the native form of the name that *text* stands for.

    Raises:
        ValueError: as `to_bytes`.
    """
    return text if text.isascii() and "\0" not in text else os.fsdecode(to_bytes(text))


def display(text: str) -> str:
    """Return *text*, with names of any form in it, for people. The result can always be encoded."""
    if text.isascii() and "\0" not in text:
        return text
    text = _ESCAPED.sub(r"\\x\1", text)
    text = _NOT_TEXT.sub(lambda byte: f"\\x{ord(byte[0]) & 0xFF:02x}", text)
    return _LONE.sub("?", text)
