"""An agent that works in steps, and goes on from its checkpoint when it is resumed.

``input``: how many steps, and at which one its call hangs: ``[STEPS, HANG]``.  A hanging call
is cut off by the end of the run.  Its value is ``{"steps": [...], "unsure": [...]}``.
"""

import time
from typing import Any

from agentctl_child import run


def main() -> dict[str, Any]:
    """Do what is not done yet."""
    steps, hang = run.input
    done: list[int] = []
    unsure: list[str] = []
    if run.resumed is not None:
        done = run.resumed.checkpoint or []
        unsure = [f"{call.name} {call.args}" for call in run.resumed.interrupted]
        hang = None
    for step in range(len(done), steps):
        with run.tool_call("work", step) as call:
            if step == hang:
                run.emit_text("so far ")
                while True:
                    time.sleep(60)
            call.result = f"did {step}"
        done.append(step)
        run.checkpoint(done)
    return {"steps": done, "unsure": unsure}
