"""Errors of the protocol, named by the side that caused them.

`LocalProtocolError` is a bug on our side. `PeerProtocolError` means that the other side broke the
rules; the run is ended with reason ``protocol``.
"""

from typing import Final

import msgspec

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions that msgspec raises for bytes that it cannot read.

For a text that is not UTF-8 it raises the second one and not its own.
"""


class ProtocolError(Exception):
    """A message or byte that the protocol does not allow; raised only as one of its subclasses."""


class LocalProtocolError(ProtocolError):
    """A message of ours that our own state does not allow. Nothing was sent."""


class PeerProtocolError(ProtocolError):
    """The other side sent bytes that are not a legal message in its present state.

    The text is one line that is fit to be shown to a person. It never contains more than a bounded
    excerpt of what was received.
    """


def one_line(error: BaseException) -> str:
    """Return the text of *error* in one line of bounded length."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return " ".join(str(error).split())[:200] or type(error).__name__
