"""The code on the child's side, and the SDK for authors of agents.

An agent is a function::

    from agentctl_child import run

    def summarise(topic):
        with run.tool_call("search", {"query": topic}) as call:
            call.result = search(topic)
        run.emit_text("found something")
        return {"pages": 3}

`run` offers everything that an agent can say or ask. An agent may also be

* an ``async def`` function. It is run by asyncio, or by trio if its module imports trio (see
  `runs_on`).
* a generator, async or not. A ``str`` that it yields is streamed text; any other value is sent as
  a message with that value as JSON. The generator's return value is the result.
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
