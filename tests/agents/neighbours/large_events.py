"""Events as large as a frame holds, one after the other.

VARIANT: ``text``, ``message`` (many in a frame), ``checkpoint``, ``artifact``, ``log``,
``progress``.
"""

import itertools
from collections.abc import Iterator

from _wire import VARIANT, frame, hello, pack, up, write

VARIANTS = ("text", "message", "checkpoint", "artifact", "log", "progress")
LARGE = "x" * 250_000


def events() -> Iterator[list[dict[str, object]]]:
    for number in itertools.count():
        match VARIANT:
            case "text":
                yield [{"type": "text", "text": LARGE}] * 3
            case "message":
                yield [{"type": "message", "text": "x", "source": f"{n % 50}"} for n in range(9000)]
            case "checkpoint":
                yield [{"type": "checkpoint", "state": [[n] * 9 for n in range(8000)]}]
            case "artifact":
                yield [{"type": "artifact", "path": f"{number}/{n}"} for n in range(10_000)]
            case "log":
                yield [{"type": "log", "text": "x"}] * 20_000
            case "progress":
                yield [{"type": "progress", "done": n, "note": "x"} for n in range(9000)]


hello()
up()
first = 1
for batch in events():
    write(frame(pack({"type": "events", "first": first, "events": batch})))
    first += len(batch)
