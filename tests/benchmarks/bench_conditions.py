"""What termination conditions cost: events a second through a tree of ten.

``python tests/benchmarks/bench_conditions.py``; medians of rounds, in CPU time, because the
machine may have other work.  No event fires a condition that ends the run: that is the
case which has to be cheap.
"""

import statistics
import time
from collections.abc import Callable
from typing import Final

from agentctl_protocol.messages import CallFinished, Message, Progress, Text, Usage
from agentctl_protocol.records import VerdictRecord
from agentctl_supervisor.conditions import Condition, Judge, Judged, from_text

EVENTS: Final = 300_000
ROUNDS: Final = 7

TREE: Final = (
    'text("TERMINATE", source="critic") | max_messages(1000000000) & tokens(total=1000000000)'
    ' | tool("finish", result="ok") | time("1h") | stop_message() | handoff("user")'
    ' | source("judge") | text_message(source="judge") | external()'
)


def mixed(number: int) -> Judged:
    """Of a hundred events: 90 pieces of text, 4 of progress, 2 messages, 2 usages, 1 call."""
    match number % 100:
        case 0 | 50:
            return Message("All of an answer, which is a little longer than a piece.", "critic")
        case 1 | 51:
            return Usage("stub-1", f"c{number // 50}", 900, 40)
        case 2:
            return VerdictRecord(f"c{number}", "tool", "search", "granted")
        case 3:
            return CallFinished(f"c{number - 1}")
        case 10 | 30 | 60 | 80:
            return Progress(1.0, 2.0)
        case _:
            return Text("a token ", "critic" if number % 2 else "writer")


STREAMS: Final[dict[str, Callable[[int], Judged]]] = {
    "mixed, as an agent streams": mixed,
    "pieces of text that are searched": lambda _: Text("a token ", "critic"),
    "pieces of text of another source": lambda _: Text("a token ", "writer"),
    "whole messages": lambda _: Message("an answer of a few words", "critic"),
    "usage": lambda number: Usage("stub-1", f"c{number // 20}", 900, number % 20),
    "progress, which no condition looks at": lambda _: Progress(1.0, 2.0),
}


def events_per_s(condition: Condition, events: list[Judged], batch: int) -> float:
    """Fed in batches of *batch*, as frames bring them; 1 uses `Judge.feed`."""
    judge = Judge(condition, 0.0)
    pieces = [events[at : at + batch] for at in range(0, len(events), batch)]
    before = time.process_time()
    if batch == 1:
        for event in events:
            judge.feed(event, 1.0)
    else:
        for piece in pieces:
            judge.feed_all(piece, 1.0)
    took = time.process_time() - before
    assert not judge.fired
    return len(events) / took


def main() -> None:
    """Print the table."""
    condition = from_text(TREE)
    print(condition)
    print(f"{'events':40} {'one by one':>12} {'in batches of 64':>18}")
    for name, make in STREAMS.items():
        events = [make(number) for number in range(EVENTS)]
        single, batched = (
            statistics.median(events_per_s(condition, events, batch) for _ in range(ROUNDS))
            for batch in (1, 64)
        )
        print(f"{name:40} {single:10,.0f}/s {batched:16,.0f}/s")
    before = time.process_time()
    for _ in range(100):
        Judge(from_text(TREE), 0.0)
    print(f"text to judge: {(time.process_time() - before) * 1e4:.0f} us")


if __name__ == "__main__":
    main()
