"""Values that cross the channel inside messages: anything that JSON can say.

A value travels as raw msgpack and is opened only here, so that nothing that
the child sends can surprise the code that shows it later.
"""

from typing import Any, Final

import msgspec

from agentctl_protocol.errors import LocalProtocolError, PeerProtocolError, one_line

#: What ``None`` looks like on the wire; the default of every value field.
NIL: Final = msgspec.Raw(b"\xc0")

MAX_NESTING: Final = 100
"""How many arrays and maps may be inside each other.

Python's own limit counts the callers too: what one process could just read,
another, called from deeper down, could not.
"""

_encoder = msgspec.msgpack.Encoder()


def pack_value(value: object) -> msgspec.Raw:
    """The wire form of *value*, which must be something that JSON can say.

    Structs, dataclasses, dates, sets and bytes are taken as msgspec takes them
    (bytes become base64 text).

    Raises:
        LocalProtocolError: *value* cannot be written as JSON; the text names the type.
    """
    try:
        # Through JSON's own shapes, so that what arrives is what a JSON reader would see.
        plain = msgspec.to_builtins(value, str_keys=True)
        _check_nesting(plain)
        msgspec.json.encode(plain)
        return msgspec.Raw(_encoder.encode(plain))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise LocalProtocolError(f"not a JSON value: {one_line(error)}") from None


def open_value(raw: msgspec.Raw, what: str = "value") -> Any:
    """The Python value of *raw*, proven to be writable as JSON.

    Raises:
        PeerProtocolError: it is not msgpack, nests too deeply, or holds what JSON cannot say.
    """
    try:
        plain = msgspec.to_builtins(msgspec.msgpack.decode(raw), str_keys=True)
        _check_nesting(plain)
        msgspec.json.encode(plain)
    except (msgspec.DecodeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise PeerProtocolError(f"bad {what}: {one_line(error)}") from None
    return plain


def _check_nesting(plain: object) -> None:
    level = [plain]
    for _ in range(MAX_NESTING + 1):
        containers = [item for item in level if isinstance(item, list | dict)]
        if not containers:
            return
        level = [
            inner
            for item in containers
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    raise RecursionError
