"""What runs on the child's side, and the SDK for those who write agents.

An agent is a function::

    from agentctl_child import run

    def summarise(topic):
        with run.tool_call("search", {"query": topic}) as call:
            call.result = search(topic)
        run.emit_text("found something")
        return {"pages": 3}

All that it can say and ask is in `run`.
"""

from agentctl_child.sdk.agent_run import Run, run
from agentctl_child.sdk.calls import Call, CallRefused
from agentctl_child.sdk.cancellation import CancelToken, RunCancelled

__all__ = ["Call", "CallRefused", "CancelToken", "Run", "RunCancelled", "run"]
