"""Errors of the protocol, named by whose fault they are.

`LocalProtocolError` is a bug on our side; `PeerProtocolError` means that the
other side broke the rules, and the run is ended with reason ``protocol``.
"""

from typing import Final

import msgspec

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises for bytes that it cannot read: for a text that is not UTF-8,
the second and not its own."""


class ProtocolError(Exception):
    """A message or byte that the protocol does not allow; raised only as one of its subclasses."""


class LocalProtocolError(ProtocolError):
    """We tried to say something that our own state does not allow.  Nothing was sent."""


class PeerProtocolError(ProtocolError):
    """The other side sent bytes that are not a legal message in its present state.

    The text is one line, fit to be shown to a person, and never contains more
    than a bounded excerpt of what was received.
    """


def one_line(error: BaseException) -> str:
    """What *error* says, in one line of bounded length."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    return " ".join(str(error).split())[:200] or type(error).__name__
