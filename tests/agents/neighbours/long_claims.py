"""Claims that have to be remembered, each as long as it may be.

VARIANT: ``ids`` (of calls that stay open), ``names`` (of tools), ``models`` (of usage),
``arguments`` (of open calls), ``calls`` (named by events).
"""

import itertools
import struct
from collections.abc import Iterator

from _wire import VARIANT, hello, pack, say_for_ever

VARIANTS = ("ids", "names", "models", "arguments", "calls")


def messages() -> Iterator[bytes]:
    for number in itertools.count(1):
        text = f"{number:0128}"
        ask = {"type": "ask", "call": f"{number:x}", "kind": "tool", "name": "x"}
        match VARIANT:
            case "ids":
                yield pack(ask | {"call": text})
            case "names":
                yield pack(ask | {"name": text * 2})
            case "arguments":
                yield pack(ask | {"args": {"x": text * 200}})
            case "models":
                yield events(number, {"type": "usage", "model": text * 2, "prompt_tokens": 1})
            case "calls":
                yield events(number, {"type": "text", "call": text, "text": "x"})


def events(first: int, event: dict[str, object]) -> bytes:
    return (
        b"\x83\xa4type\xa6events\xa5first\xce"
        + struct.pack(">I", first)
        + b"\xa6events"
        + pack([event])
    )


hello()
say_for_ever(messages())
