"""The values inside messages of the channel: anything that JSON can represent.

A value travels as raw msgpack and is decoded only here. So nothing that the child sends can
surprise the code that shows it later.
"""

from collections.abc import Generator
from typing import Any, Final, NamedTuple

import msgspec

from agentctl_protocol.errors import LocalProtocolError, PeerProtocolError, one_line

#: The form of ``None`` on the wire; the default of every value field.
NIL: Final = msgspec.Raw(b"\xc0")

MAX_NESTING: Final = 100
"""The maximum depth of arrays and maps inside each other.

Python's own limit counts the callers too. A value that one process could just read would be too
deep for a process that calls this from a deeper stack.
"""

MAX_CONTAINERS: Final = 1 << 19
"""The maximum number of arrays and maps in a value.

Each takes some seventy bytes of memory, and one byte on the wire.
"""

_AT_ONCE: Final = 4096
"""Arrays and maps that are read in one step."""
_STEP: Final = 512
_CONTAINER_HEADERS: Final = bytes((*range(0x80, 0xA0), *range(0xDC, 0xE0)))
_LEAVES: Final = frozenset({int, float, str, bool, type(None)})
#: Bytes of the items whose first byte gives the size: nil, booleans, numbers, fixed extensions.
_FIXED: Final = {
    0xC0: 1,
    0xC2: 1,
    0xC3: 1,
    0xCA: 5,
    0xCB: 9,
    0xCC: 2,
    0xCD: 3,
    0xCE: 5,
    0xCF: 9,
    0xD0: 2,
    0xD1: 3,
    0xD2: 5,
    0xD3: 9,
    0xD4: 3,
    0xD5: 4,
    0xD6: 6,
    0xD7: 10,
    0xD8: 18,
}
#: Binary data, extensions and text: bytes of their length field, and additional bytes.
_SIZED: Final = {
    0xC4: (1, 0),
    0xC5: (2, 0),
    0xC6: (4, 0),
    0xC7: (1, 1),
    0xC8: (2, 1),
    0xC9: (4, 1),
    0xD9: (1, 0),
    0xDA: (2, 0),
    0xDB: (4, 0),
}

#: The types that `msgspec.to_builtins` makes of everything that holds items.
_CONTAINERS: Final = frozenset({list, dict, tuple})

_encoder = msgspec.msgpack.Encoder()


def pack_value(value: object) -> msgspec.Raw:
    """Return the wire form of *value*, which must be a value that JSON can represent.

    msgspec converts structs, dataclasses, dates, sets and bytes (bytes become base64 text).

    Raises:
        LocalProtocolError: *value* cannot be written as JSON; the text names the type.
    """
    if value is None:
        return NIL
    try:
        # Converted to JSON's own types first, so that what arrives is what a JSON reader would
        # see. Then msgpack can refuse only numbers over 64 bits and lone surrogates.
        plain = msgspec.to_builtins(value, str_keys=True)
        _check_nesting(plain)
        return msgspec.Raw(_encoder.encode(plain))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise LocalProtocolError(f"not a JSON value: {one_line(error)}") from None


def open_value(raw: msgspec.Raw, what: str = "value", most: int = MAX_CONTAINERS) -> Any:
    """Return the Python value of *raw*, checked to be writable as JSON.

    Raises:
        PeerProtocolError: it is not msgpack, nests too deeply, holds what JSON cannot represent, or
            more than *most* arrays and maps.
    """
    steps = opening(raw, what, most)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            return stop.value.value


class TooManyPartsError(PeerProtocolError):
    """A value holds more arrays and maps than it may."""


class Opened(NamedTuple):
    """A decoded value, and the number of arrays and maps in it."""

    value: Any
    containers: int


def opening(
    raw: msgspec.Raw, what: str = "value", most: int = MAX_CONTAINERS
) -> Generator[None, None, Opened]:
    """Run `open_value` in steps of a few milliseconds at most, whatever *raw* is made of.

    A million empty arrays take msgspec a second and more: each is an object that Python's garbage
    collector looks at again and again.

    Raises: see `open_value`.
    """
    try:
        if _containers_at_most(raw) <= _AT_ONCE:
            opened: Opened | None = _open_at_once(raw)
        else:
            opened = yield from _walk(bytes(raw), most)
    except LookupError:  # raised for 0xc1, too, which is no item
        raise PeerProtocolError(f"bad {what}: not msgpack, or cut short") from None
    except (msgspec.DecodeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise PeerProtocolError(f"bad {what}: {one_line(error)}") from None
    if opened is None or opened.containers > most:
        raise TooManyPartsError(f"bad {what}: more than {most:,} lists and maps")
    return opened


def _containers_at_most(raw: msgspec.Raw) -> int:
    """Return an upper bound of the number of arrays and maps in *raw*, computed fast.

    It can be too high, because bytes of a text may look like an array or a map.
    """
    view = memoryview(raw)
    return len(view) - len(bytes(view).translate(None, _CONTAINER_HEADERS))


def _open_at_once(raw: msgspec.Raw) -> Opened:
    plain = msgspec.to_builtins(msgspec.msgpack.decode(raw), str_keys=True)
    containers = _check_nesting(plain)
    msgspec.json.encode(plain)
    return Opened(plain, containers)


class _Open:
    """An array or a map that is being read, and the number of its missing items."""

    __slots__ = ("items", "key", "left")

    def __init__(self, items: Any, left: int) -> None:
        self.items = items
        self.left = left
        self.key: str | None = None


def _walk(data: bytes, most: int) -> Generator[None, None, Opened | None]:
    """Read *data* item by item: arrays and maps here, everything else by msgspec.

    Returns None if there are more than *most* arrays and maps.
    """
    stack: list[_Open] = []
    containers = steps = at = 0
    while True:
        steps += 1
        if not steps % _STEP:
            yield
        begin = _container(data, at)
        if begin is None:
            end = _leaf_end(data, at)
            item: Any = msgspec.msgpack.decode(data[at:end])
            if type(item) not in _LEAVES:
                item = msgspec.to_builtins(item)
            at = end
        else:
            item, left, at = begin
            containers += 1
            if containers > most:
                return None
            if left:
                if len(stack) >= MAX_NESTING:
                    raise RecursionError
                stack.append(_Open(item, left))
                continue
        item = _put(item, stack)
        if not stack:
            if at != len(data):
                raise ValueError("bytes behind it")
            return Opened(item, containers)


def _put(item: Any, stack: list[_Open]) -> Any:
    """Add the complete *item* to its parent, and a parent that it completes to that one's parent.

    Returns the item that is left at the end. It is the whole value if *stack* is empty then.
    """
    while stack:
        parent = stack[-1]
        if type(parent.items) is list:
            parent.items.append(item)
        elif parent.key is None:
            parent.key = _key(item)
            break
        else:
            parent.items[parent.key], parent.key = item, None
        parent.left -= 1
        if parent.left:
            break
        item = stack.pop().items
    return item


def _container(data: bytes, at: int) -> tuple[Any, int, int] | None:
    """Return the array or map at *at*: itself, empty; its number of items; where they begin.

    Returns None if the item is neither.
    """
    first = data[at]
    if 0x80 <= first < 0xA0:
        return ({} if first < 0x90 else []), first & 0x0F, at + 1
    if 0xDC <= first <= 0xDF:
        behind = at + (3 if first in (0xDC, 0xDE) else 5)
        left = int.from_bytes(data[at + 1 : behind])
        # Each item takes at least a byte, so a number of items that cannot fit is refused at once.
        if left > len(data) - behind:
            raise IndexError
        return ({} if first >= 0xDE else []), left, behind
    return None


def _leaf_end(data: bytes, at: int) -> int:
    """Return the end of the item at *at*, which is neither array nor map."""
    first = data[at]
    if first < 0x80 or first >= 0xE0:
        return at + 1
    if first < 0xC0:  # a short text
        return at + 1 + (first & 0x1F)
    fixed = _FIXED.get(first)
    if fixed is not None:
        return at + fixed
    width, more = _SIZED[first]
    return at + 1 + width + int.from_bytes(data[at + 1 : at + 1 + width]) + more


def _key(item: object) -> str:
    if isinstance(item, str):
        return item
    if isinstance(item, list | dict):
        raise TypeError("a map's key is no text")
    (key,) = msgspec.to_builtins({item: None}, str_keys=True)
    return str(key)


def _check_nesting(plain: object) -> int:
    """Return the number of arrays and maps in *plain*."""
    containers: list[Any] = [plain] if type(plain) in _CONTAINERS else []
    count = len(containers)
    for _ in range(MAX_NESTING):
        if not containers:
            return count
        inner: list[Any] = []
        for container in containers:
            for item in container.values() if type(container) is dict else container:
                if type(item) in _CONTAINERS:
                    inner.append(item)  # noqa: PERF401 - a comprehension a container costs more
        containers = inner
        count += len(inner)
    if containers:
        raise RecursionError
    return count
