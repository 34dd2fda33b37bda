"""A supervisor of many runs that says how late its loop is, for `agentctl_testkit.neighbours`.

One line of JSON for each order in, one for each answer out, with the order's ``id``.
"""

import sys
import time
from typing import Any, Literal

import msgspec
import trio

from agentctl_protocol.spec import RunSpec, SpecError
from agentctl_supervisor.errors import AgentctlError
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.supervisor import Supervisor

EVERY_S = 0.005
"""How often the loop is looked at."""


class Order(msgspec.Struct):
    """What to do: with the run that is called *name*, or with all of *names*.

    ``feed``: what to write to it without end.  ``lateness``: answer with what was seen since the
    last such order.
    """

    id: int
    do: Literal["start", "up", "outcome", "stop", "stop_all", "lateness"]
    name: str = ""
    names: tuple[str, ...] = ()
    spec: RunSpec | None = None
    feed: Literal["", "stdin", "input"] = ""


class _Server:
    def __init__(self, supervisor: Supervisor, nursery: trio.Nursery) -> None:
        self._supervisor = supervisor
        self._nursery = nursery
        self._runs: dict[str, Run] = {}
        self._late_s: list[float] = []

    async def watch_the_loop(self) -> None:
        while True:
            due = time.monotonic() + EVERY_S
            await trio.sleep(EVERY_S)
            self._late_s.append(time.monotonic() - due)

    async def obey(self, order: Order) -> None:
        try:
            answer = await getattr(self, f"_{order.do}")(order)
        except (AgentctlError, SpecError) as error:
            answer = {"error": f"{error}"}
        data = msgspec.json.encode({"id": order.id, **answer}) + b"\n"
        await trio.to_thread.run_sync(_say, data) if len(data) > 4096 else _say(data)

    async def _start(self, order: Order) -> dict[str, Any]:
        assert order.spec is not None
        run = self._runs[order.name] = await self._supervisor.start(order.spec)
        report = await run.wait_started()
        if order.feed:
            self._nursery.start_soon(_feed, run, order.feed)
        return {"run": run.id, "state": report.state, "detail": report.detail}

    async def _up(self, order: Order) -> dict[str, Any]:
        """The first line that the run has said, once it has; empty if it ends without one."""
        run = self._runs[order.name]
        # Output has no event but for who takes it.
        while b"\n" not in run.stdout and not run.report.finished:  # noqa: ASYNC110
            await trio.sleep(0.02)
        line = run.stdout[:200].partition(b"\n")[0] or run.stderr[-200:]
        return {"said": line.decode(errors="replace"), "finished": run.report.finished}

    async def _outcome(self, order: Order) -> dict[str, Any]:
        return _told(await self._runs[order.name].wait())

    async def _stop(self, order: Order) -> dict[str, Any]:
        return _told(await self._runs[order.name].stop(grace_s=0.0, term_grace_s=0.5))

    async def _stop_all(self, order: Order) -> dict[str, Any]:
        runs = [self._runs[name] for name in order.names]
        for run in runs:
            run.request_stop(grace_s=0.2, term_grace_s=0.5)
        return {"runs": [_told(await run.wait()) for run in runs]}

    async def _lateness(self, _: Order) -> dict[str, Any]:
        seen, self._late_s = self._late_s, []
        return {"late_s": seen}


def _told(report: Any) -> dict[str, Any]:
    return {
        "result": report.result,
        "reason": report.reason,
        "detail": report.detail,
        "survivors": report.processes.survivors,
    }


async def _feed(run: Run, to: str) -> None:
    """Write to *run* for as long as it takes what is written."""
    try:
        while not run.report.finished:
            if to == "stdin":
                assert run.stdin is not None
                await run.stdin.send_all(bytes(1 << 20))
            else:
                await run.send_input("x" * 100_000)
            await trio.lowlevel.checkpoint()
    except (AgentctlError, trio.BrokenResourceError, trio.ClosedResourceError):
        pass


def _say(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


async def serve() -> None:
    """Obey until the end of standard input."""
    data = b""
    async with (
        Supervisor.open() as supervisor,
        trio.open_nursery() as nursery,
        trio.lowlevel.FdStream(0) as lines,
    ):
        server = _Server(supervisor, nursery)
        nursery.start_soon(server.watch_the_loop)
        async for piece in lines:
            *complete, data = (data + piece).split(b"\n")
            for line in complete:
                nursery.start_soon(server.obey, msgspec.json.decode(line, type=Order))
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(serve)
