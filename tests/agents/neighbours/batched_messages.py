"""Frames of 1 MiB with tens of thousands of small messages each.

VARIANT: ``ask`` (a new call each), ``same`` (one call again and again), ``fin`` (ends of a call
that was never granted), ``event``, ``beat``, ``call`` (a call and its end).
"""

import itertools
import struct
from collections.abc import Iterator

from _wire import VARIANT, hello, say_for_ever, short

VARIANTS = ("ask", "same", "fin", "event", "beat", "call")
EVENT = b"\x91" + short({"type": "text", "text": ""})


def messages() -> Iterator[bytes]:
    for number in itertools.count(1):
        match VARIANT:
            case "ask":
                yield ask(f"{number:x}")
            case "same":
                yield ask("x")
            case "fin":
                yield short({"type": "call_finished", "call": "x"})
            case "event":
                first = b"\xce" + struct.pack(">I", number)
                yield short({"type": "events", "first": first, "events": EVENT})
            case "beat":
                yield short({"type": "beat"})
            case "call":
                yield ask(f"{number:x}")
                yield short({"type": "call_finished", "call": f"{number:x}"})


def ask(call: str) -> bytes:
    return short({"type": "ask", "call": call, "kind": "tool", "name": "x"})


hello()
say_for_ever(messages())
