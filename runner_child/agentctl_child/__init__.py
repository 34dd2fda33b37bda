"""What runs on the child's side, and the SDK for those who write agents.

An agent is a function::

    from agentctl_child import run

    def summarise(topic):
        with run.tool_call("search", {"query": topic}) as call:
            call.result = search(topic)
        run.emit_text("found something")
        return {"pages": 3}

All that it can say and ask is in `run`.  It may also be

* an ``async def``, run by asyncio, or by trio where its module imports that (`runs_on`);
* a generator, async or not: a ``str`` that it yields is streamed text, anything else is a
  message with its JSON, and what a generator returns is the result.
"""

from agentctl_child.sdk.agent_run import Run, run
from agentctl_child.sdk.async_library import runs_on
from agentctl_child.sdk.calls import Call, CallRefused
from agentctl_child.sdk.cancellation import CancelToken, RunCancelled
from agentctl_child.sdk.resumed import PastCall, Resumed

__all__ = [
    "Call",
    "CallRefused",
    "CancelToken",
    "PastCall",
    "Resumed",
    "Run",
    "RunCancelled",
    "run",
    "runs_on",
]
