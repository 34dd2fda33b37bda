"""Asks and never reads the answers, so that they pile up with the supervisor.

VARIANT: ``verdicts``, ``acks`` (events, each batch of which is acknowledged), ``inputs`` (what is
sent to it is never taken).
"""

import itertools
import struct
import time
from collections.abc import Iterator

from _wire import VARIANT, hello, say_for_ever, short, up

VARIANTS = ("verdicts", "acks", "inputs")
FEED = "input"


def messages() -> Iterator[bytes]:
    for number in itertools.count(1):
        if VARIANT == "verdicts":
            yield short({"type": "ask", "call": f"{number:x}", "kind": "tool", "name": "x"})
        else:
            event = b"\x91" + short({"type": "text", "text": "x"})
            first = b"\xce" + struct.pack(">I", number)
            yield short({"type": "events", "first": first, "events": event})


hello(reads=False)
if VARIANT == "inputs":
    up()
    time.sleep(1000)
say_for_ever(messages())
