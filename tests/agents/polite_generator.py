"""A polite generator: yields its text, and returns its result."""

import time
from collections.abc import Generator
from typing import Any

from agentctl_child import RunCancelled, run


def main(given: Any) -> Generator[str, None, dict[str, Any]]:
    """Count to *given* (default 3) with a tool, and yield each number; give what was counted."""
    done: list[int] = []
    try:
        for number in range(1, int(given or 3) + 1):
            with run.tool_call("count", {"number": number}) as call:
                time.sleep(0.01)
                call.result = number
            done.append(number)
            yield f"{number} "
    except RunCancelled:
        run.checkpoint({"done": done})
        raise
    return {"done": done}


def sleep(given: Any) -> Generator[str, None, None]:
    """Say so, then sleep for *given* seconds (default 60)."""
    yield "asleep"
    time.sleep(float(given or 60))


def echo() -> Generator[dict[str, Any], None, list[Any]]:
    """Answer every item of input; give them all."""
    heard = []
    for item in run.inputs():
        yield {"echo": item}
        heard.append(item)
    return heard
