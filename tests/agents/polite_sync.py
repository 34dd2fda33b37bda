"""A polite agent: a plain function that reports, asks, and saves its work when it is stopped."""

import time
from typing import Any

from agentctl_child import CallRefused, RunCancelled, run


def main(given: Any) -> dict[str, Any]:
    """Count to *given* (default 3) with a tool, a tick each; give what was counted."""
    last = int(given or 3)
    done: list[int] = []
    try:
        for number in range(1, last + 1):
            try:
                with run.tool_call("count", {"number": number}) as call:
                    time.sleep(0.01)
                    call.result = number
            except CallRefused as refused:
                run.log(f"went on without {number}: {refused.why}", level="warning")
                continue
            done.append(number)
            run.emit_text(f"{number} ", source="counter")
            run.progress(number, last)
    except RunCancelled:
        run.checkpoint({"done": done})
        raise
    run.usage(prompt_tokens=last, completion_tokens=len(done), model="none")
    return {"done": done}


def sleep(given: Any) -> None:
    """Say so, then sleep for *given* seconds (default 60)."""
    run.emit_text("asleep")
    time.sleep(float(given or 60))


def echo() -> list[Any]:
    """Answer every item of input; give them all."""
    heard = []
    for item in run.inputs():
        run.emit_message(str(item), source="echo")
        heard.append(item)
    return heard
