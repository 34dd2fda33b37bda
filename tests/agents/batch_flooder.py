"""Says tens of thousands of things in each frame of the channel, as fast as they are taken.

``batch_flooder.py KIND``: ``ask``, ``same`` (one call id), ``fin`` (calls that were never
granted), ``beat``, ``event`` (a batch of batches), ``events`` (one batch), ``usage``, or
``lists`` (events whose values are made of nothing but lists).  What is answered is read
and forgotten.
"""

import itertools
import os
import struct
import sys
import threading

from raw_channel import Value, frame, pack, say, send

ROOM = (1 << 20) - 64
TEXT: Value = {"type": "text", "text": ""}


def batch(bodies: list[bytes]) -> bytes:
    """One frame of many messages."""
    return frame(struct.pack(">BI", 0xDD, len(bodies)) + b"".join(bodies))


def array(item: bytes) -> bytes:
    """As many of *item* as fit into a frame."""
    count = ROOM // len(item)
    return struct.pack(">BI", 0xDD, count) + item * count


def body(kind: str, number: int) -> bytes:
    """One message; *number* counts them."""
    return {
        "ask": lambda: pack({"type": "ask", "call": f"{number:x}", "kind": "tool", "name": "x"}),
        "same": lambda: pack({"type": "ask", "call": "x", "kind": "tool", "name": "x"}),
        "fin": lambda: pack({"type": "call_finished", "call": "x"}),
        "beat": lambda: pack({"type": "beat"}),
        "event": lambda: pack({"type": "events", "first": number, "events": [TEXT]}),
    }[kind]()


def events(first: int, item: bytes) -> tuple[bytes, int]:
    """One frame of one long batch of events, and how many they are."""
    items = array(item)
    head = b"\x83" + pack("type") + pack("events") + pack("first") + pack(first) + pack("events")
    return frame(head + items), int.from_bytes(items[1:5])


def read_all() -> None:
    """Read what the supervisor says, and forget it."""
    reads = int(os.environ["AGENTCTL_CHANNEL_FD"].partition(",")[0])
    while os.read(reads, 1 << 16):
        pass


def flood(kind: str) -> None:
    """Never ends."""
    number = 1
    while True:
        if kind in ("events", "usage"):
            item = b"\x82" + pack("type") + pack("text") + pack("text") + pack("")
            data, count = events(number, item if kind == "events" else b"\x81\xa4type\xa5usage")
            send(data)
            number += count
        elif kind == "lists":
            state = array(b"\x90")[: ROOM // 2]
            state = struct.pack(">BI", 0xDD, len(state) - 5) + state[5:]
            event = b"\x82" + pack("type") + pack("checkpoint") + pack("state") + state
            head = b"\x83" + pack("type") + pack("events") + pack("first") + pack(number)
            send(frame(head + pack("events") + b"\x91" + event))
            number += 1
        else:
            bodies, size = list[bytes](), 5
            for number in itertools.count(number):  # noqa: B020 - goes on where it was
                one = body(kind, number)
                if size + len(one) > ROOM:
                    break
                size += len(one)
                bodies.append(one)
            send(batch(bodies))


say({"type": "hello", "version": 1})
say({"type": "ready"})
threading.Thread(target=read_all, daemon=True).start()
print("up", flush=True)
flood(sys.argv[1])
