"""A polite agent that makes one call after the other, without a pause in between."""

import time

from agentctl_child import RunCancelled, run


def main() -> None:
    """Call until it is stopped; then say how far it got."""
    calls = 0
    try:
        while True:
            with run.tool_call("tick", {"number": calls}):
                time.sleep(0.02)
            calls += 1
            run.emit_text(".")
    except RunCancelled:
        run.checkpoint(calls)
        raise
