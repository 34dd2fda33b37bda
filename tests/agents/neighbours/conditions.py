"""Text that a tree of thousands of conditions has to be judged by.

VARIANT: ``pieces`` (streamed, a few bytes each), ``messages``, ``calls``.
"""

import itertools
from collections.abc import Iterator

from _wire import VARIANT, frame, hello, pack, up, write

VARIANTS = ("pieces", "messages")
SPEC = {
    "stop_when": {
        "type": "any",
        "conditions": [
            {"type": "text", "text": "x" * 4000 + f"{number}y"} for number in range(2000)
        ],
    }
}


def events() -> Iterator[list[dict[str, object]]]:
    while True:
        if VARIANT == "pieces":
            yield [{"type": "text", "text": "xxxxxxx"}] * 10_000
        else:
            yield [{"type": "message", "text": "x" * 4100}] * 200


hello()
up()
first = 1
for batch in itertools.chain(events()):
    write(frame(pack({"type": "events", "first": first, "events": batch})))
    first += len(batch)
