"""An agent whose model call is cut in the middle of its stream, before any usage is known.

``input``: ``{"pieces": N, "usage": [PROMPT, COMPLETION] or null, "swallow": bool}``.  With
``swallow`` the call is cut by SIGKILL, else by the agent's own end.
"""

import time

from agentctl_child import RunCancelled, run

PROMPT = "You are a researcher. " * 500
PIECE = "word " * 8


def main() -> None:
    """Stream until it is stopped."""
    wanted = run.input
    with run.model_call("big-model", {"messages": [{"role": "user", "content": PROMPT}]}) as call:
        for _ in range(wanted["pieces"]):
            run.emit_text(PIECE)
        if wanted["usage"]:
            prompt, completion = wanted["usage"]
            run.usage(
                model="big-model", prompt_tokens=prompt, completion_tokens=completion, call=call.id
            )
        run.progress(1, 1, "streaming")
        while True:
            try:
                time.sleep(60)
            except RunCancelled:
                if not wanted["swallow"]:
                    raise
