"""The channel as a program without our SDK sees it: ``docs/protocol.md`` and 40 lines."""

import os
import struct

Value = str | int | bool | None | list["Value"] | dict[str, "Value"]


def pack(value: Value) -> bytes:
    """*value* as msgpack, for the few shapes that the test programs need."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return struct.pack(">Bq", 0xD3, value)
    if isinstance(value, str):
        encoded = value.encode()
        return struct.pack(">BI", 0xDB, len(encoded)) + encoded
    if isinstance(value, list):
        return struct.pack(">BI", 0xDD, len(value)) + b"".join(map(pack, value))
    pairs = (pack(key) + pack(item) for key, item in value.items())
    return struct.pack(">BI", 0xDF, len(value)) + b"".join(pairs)


def frame(body: bytes) -> bytes:
    """*body* with its length in front."""
    return struct.pack(">I", len(body)) + body


def send(data: bytes) -> None:
    """Put *data* on the channel as it is; does nothing where there is none."""
    _, _, writes = os.environ.get("AGENTCTL_CHANNEL_FD", "").partition(",")
    while writes and data:
        data = data[os.write(int(writes), data) :]


def say(message: Value) -> None:
    """Send one message."""
    send(frame(pack(message)))
