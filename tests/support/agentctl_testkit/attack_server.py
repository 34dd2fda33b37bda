"""A supervisor that starts the runs it reads from standard input, for whoever started it.

One line of JSON for each: ``{"id": 1, "spec": {...}}`` in; ``{"id": 1, "directory": "..."}``
out, which is the run's, and ``{"id": 1, "report": {...}, "stdout": "...", "stderr": "..."}``
once the run has finished; or ``{"id": 1, "error": "..."}`` if it could not be started.  At the
end of its input the supervisor ends.
"""

import os
import sys
from typing import Any

import msgspec
import trio

from agentctl_protocol.spec import RunSpec, SpecError
from agentctl_supervisor.errors import AgentctlError
from agentctl_supervisor.supervisor import Supervisor


class Job(msgspec.Struct):
    """A line of input."""

    id: int
    spec: RunSpec


async def serve() -> None:
    """Start what is read; return when there is no more to read and all of it has finished."""
    data = b""
    async with (
        Supervisor.open() as supervisor,
        trio.open_nursery() as nursery,
        trio.lowlevel.FdStream(0) as lines,
    ):
        async for piece in lines:
            *complete, data = (data + piece).split(b"\n")
            for line in complete:
                job = msgspec.json.decode(line, type=Job)
                nursery.start_soon(_run, supervisor, job)


async def _run(supervisor: Supervisor, job: Job) -> None:
    try:
        run = await supervisor.start(job.spec)
        _say({"id": job.id, "directory": f"{supervisor.home.root}/runs/{run.id}"})
        report = await run.wait()
        await run.wait_delivered()
    except (AgentctlError, SpecError) as error:
        _say({"id": job.id, "error": f"{error}"})
        return
    _say(
        {
            "id": job.id,
            "report": report,
            "stdout": run.stdout.decode(errors="backslashreplace"),
            "stderr": run.stderr.decode(errors="backslashreplace"),
        }
    )


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    # What a careless program has open, for its children too: no run may get it.
    os.set_inheritable(os.open("/", os.O_PATH | os.O_DIRECTORY), True)
    trio.run(serve)
