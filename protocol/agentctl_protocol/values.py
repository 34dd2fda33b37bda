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

#: What `msgspec.to_builtins` makes of everything that holds something.
_CONTAINERS: Final = frozenset({list, dict, tuple})

_encoder = msgspec.msgpack.Encoder()


def pack_value(value: object) -> msgspec.Raw:
    """The wire form of *value*, which must be something that JSON can say.

    Structs, dataclasses, dates, sets and bytes are taken as msgspec takes them
    (bytes become base64 text).

    Raises:
        LocalProtocolError: *value* cannot be written as JSON; the text names the type.
    """
    if value is None:
        return NIL
    try:
        # Through JSON's own shapes, so that what arrives is what a JSON reader would see:
        # all that is left for msgpack to refuse are numbers over 64 bits and lone surrogates.
        plain = msgspec.to_builtins(value, str_keys=True)
        _check_nesting(plain)
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
    containers: list[Any] = [plain] if type(plain) in _CONTAINERS else []
    for _ in range(MAX_NESTING):
        if not containers:
            return
        inner: list[Any] = []
        for container in containers:
            for item in container.values() if type(container) is dict else container:
                if type(item) in _CONTAINERS:
                    inner.append(item)  # noqa: PERF401 - a comprehension a container costs more
        containers = inner
    if containers:
        raise RecursionError
