"""The channel in a few lines, for programs that take nothing of ours into a run."""

import itertools
import os
import struct
import sys
import threading
from collections.abc import Iterable
from typing import Any

VARIANT = sys.argv[1] if len(sys.argv) > 1 else ""
NEIGHBOURS = int(os.environ.get("AGENTCTL_TEST_NEIGHBOURS", "1"))
"""How many of this program run side by side."""
FRAME = 1 << 20
READ, WRITE = (
    int(number)
    for number in itertools.islice(
        itertools.cycle(os.environ.get("AGENTCTL_CHANNEL_FD", "-1").split(",")), 2
    )
)


def up(words: str = "") -> None:
    """Say that the attack is under way; called once."""
    os.write(1, f"up {words}\n".encode())


def pack(value: Any) -> bytes:
    """Msgpack, without its shorter forms."""
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return b"\xcf" + struct.pack(">Q", value)
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            data = value.encode("utf-8", "surrogatepass")
            return b"\xdb" + struct.pack(">I", len(data)) + data
        case dict():
            items = (pack(key) + pack(item) for key, item in value.items())
            return b"\xdf" + struct.pack(">I", len(value)) + b"".join(items)
    return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(pack, value))


def frame(body: bytes) -> bytes:
    """A body with its length."""
    return struct.pack(">I", len(body)) + body


def write(data: bytes) -> None:
    """All of *data* to the channel, whether that is a socket or a pipe."""
    view = memoryview(data)
    while view:
        view = view[os.write(WRITE, view) :]


def say(**message: Any) -> None:
    """One message as a frame."""
    write(frame(pack(message)))


def hello(*, reads: bool = True) -> None:
    """Begin the conversation; *reads*: forget what is answered, in a thread."""
    say(type="hello", version=1)
    say(type="ready")
    if reads:
        threading.Thread(target=_swallow, daemon=True).start()


def _swallow() -> None:
    while os.read(READ, 1 << 20):
        pass


def say_for_ever(messages: Iterable[bytes]) -> None:
    """Packed messages in frames that are as full as may be, for as long as there are any."""
    body: list[bytes] = []
    size = 5
    up()  # before the first frame: the supervisor may not take all of it
    for message in messages:
        if size + len(message) > FRAME:
            write(frame(b"\xdd" + struct.pack(">I", len(body)) + b"".join(body)))
            body, size = [], 5
        body.append(message)
        size += len(message)


def short(value: dict[str, Any]) -> bytes:
    """A small message in few bytes: a map of short keys with short texts or with packed bytes."""
    parts = [bytes([0x80 | len(value)])]
    for key, item in value.items():
        parts.append(_short_text(key))
        parts.append(item if isinstance(item, bytes) else _short_text(item))
    return b"".join(parts)


def _short_text(text: str) -> bytes:
    data = text.encode()
    return bytes([0xA0 | len(data)]) + data if len(data) < 32 else pack(text)
