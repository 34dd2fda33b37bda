"""Uses the channel in ways that are legal bytes and bad manners, or illegal; the argument says how.

The floods never read what they are sent, and go on until they are killed.
"""

import contextlib
import os
import stat
import struct

from membership import Tree, arguments, stay
from raw_channel import Value, frame, pack, say, send

HELLO: Value = {"type": "hello", "version": 1}
READY: Value = {"type": "ready"}
BULK = 2000
TINY_FRAMES = 100_000


def greet() -> None:
    say(HELLO)
    say(READY)


def asks(first: int, count: int) -> bytes:
    return b"".join(
        frame(pack({"type": "ask", "call": f"c{number}", "kind": "tool", "name": "spin"}))
        for number in range(first, first + count)
    )


def events(first: int, count: int, text: str = "x") -> bytes:
    # One a frame: the most that a byte of the channel can cost the other end.
    return b"".join(
        frame(pack({"type": "events", "first": number, "events": [{"type": "text", "text": text}]}))
        for number in range(first, first + count)
    )


def flood_with_asks() -> None:
    greet()
    number = 1
    while True:
        send(asks(number, BULK))
        number += BULK


def flood_with_one_ask() -> None:
    """The same call id, again and again: refused, which is legal."""
    greet()
    bulk = asks(1, 1) * BULK
    while True:
        send(bulk)


def flood_with_beats() -> None:
    greet()
    bulk = frame(pack({"type": "beat"})) * BULK
    while True:
        send(bulk)


def flood_with_batched_beats() -> None:
    """The smallest messages there are, as many as fit into a frame."""
    greet()
    beat = b"\x81\xa4type\xa4beat"
    count = 90_000
    batch = frame(struct.pack(">BI", 0xDD, count) + beat * count)
    while True:
        send(batch)


def flood_with_events() -> None:
    greet()
    number = 1
    while True:
        send(events(number, BULK))
        number += BULK


def flood_with_big_events() -> None:
    greet()
    number = 1
    while True:
        send(events(number, 1, "x" * (1 << 19)))
        number += 1


def flood_with_finished_calls() -> None:
    greet()
    bulk = frame(pack({"type": "call_finished", "call": "never asked"})) * BULK
    while True:
        send(bulk)


def send_tiny_frames() -> None:
    greet()
    for first in range(1, TINY_FRAMES, BULK):
        send(events(first, BULK))
    leave()


def result_before_ready() -> None:
    say(HELLO)
    say({"type": "result", "value": 1})
    stay()


def double_result() -> None:
    greet()
    say({"type": "result", "value": 1})
    say({"type": "result", "value": 2})
    stay()


def words_after_bye() -> None:
    greet()
    say({"type": "bye"})
    say({"type": "beat"})
    stay()


def reuse_a_call_id() -> None:
    greet()
    send(asks(1, 1) * 2)
    read_frames(3)  # start, and two verdicts
    leave()


def finish_unknown_calls() -> None:
    greet()
    for call in ("nobody", "", "c1"):
        if call:
            say({"type": "call_finished", "call": call, "outcome": "ok", "result": "forged"})
    send(asks(1, 1))
    read_frames(2)
    say({"type": "call_finished", "call": "c1", "outcome": "ok"})
    say({"type": "call_finished", "call": "c1", "outcome": "error", "error": "again"})
    leave()


def scribble() -> int:
    """A function that writes into the channel which the SDK has connected for it."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            if (number := int(name)) > 2 and stat.S_ISFIFO(os.fstat(number).st_mode):
                os.write(number, b"\0\0\0\1\xc1")  # EBADF for the one that is read from
    return 1


def leave() -> None:
    say({"type": "bye"})
    os._exit(0)


def read_frames(count: int) -> None:
    reads = int(os.environ["AGENTCTL_CHANNEL_FD"].partition(",")[0])

    def read(length: int) -> bytes:
        data = b""
        while len(data) < length:
            piece = os.read(reads, length - len(data))
            if not piece:
                os._exit(70)
            data += piece
        return data

    for _ in range(count):
        (length,) = struct.unpack(">I", read(4))
        read(length)


if __name__ == "__main__":
    Tree().up("root")
    globals()[arguments()[0]]()
