"""What the SDK costs an agent: permission round trip, events a second, start, reaction to a stop.

``python tests/benchmarks/bench_sdk.py``; nothing but the channel is in between: no
supervisor, no log.  The other end is this process, blocking in ``recv``.
"""

import os
import queue
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from agentctl_child import run, runs_on
from agentctl_protocol.messages import Ask, CallFinished, Events, Ready, ResultMessage
from agentctl_protocol.values import open_value
from agentctl_testkit.channel import channel_pair
from agentctl_testkit.sdk import AGENTS, AgentUnderTest, ForkedAgents

ROUNDS: Final = 5000
EVENTS: Final = 300_000
STARTS: Final = 100
_MODES: Final = (("sync", "ask_many"), ("asyncio", "ask_many_async"), ("trio", "ask_many_trio"))


def ask_many() -> list[float]:
    """In the agent: microseconds that each permission took."""
    took = []
    for _ in range(ROUNDS):
        before = time.perf_counter()
        call = run.tool_call("bench", {"path": "/a/b", "n": 7})
        call.__enter__()
        took.append((time.perf_counter() - before) * 1e6)
        call.__exit__(None, None, None)
    return took


async def ask_many_async() -> list[float]:
    """In the agent: the same in a task."""
    took = []
    for _ in range(ROUNDS):
        before = time.perf_counter()
        call = run.tool_call("bench", {"path": "/a/b", "n": 7})
        await call.__aenter__()
        took.append((time.perf_counter() - before) * 1e6)
        call.__exit__(None, None, None)
    return took


@runs_on("trio")
async def ask_many_trio() -> list[float]:
    """In the agent: the same in a task of trio."""
    return await ask_many_async()


def emit_many() -> float:
    """In the agent: events a second, until the last has left."""
    before = time.perf_counter()
    for _ in range(EVENTS):
        run.emit_text("a token of text ")
    run.flush()
    return EVENTS / (time.perf_counter() - before)


def _hear_out(agent: AgentUnderTest) -> Any:
    # Leaner than `finish`: keeps nothing, since the other end is not what is measured.
    while True:
        for message, _ in agent.channel.receive(agent.end.recv(1 << 16)):
            if isinstance(message, Ask):
                agent.grant(message)
            elif isinstance(message, ResultMessage):
                return open_value(message.value)
            else:
                assert isinstance(message, (CallFinished, Events, Ready)), message


def _percentiles(times: list[float]) -> str:
    ordered = sorted(times)
    return (
        f"median {statistics.median(ordered):7.1f}   p90 {ordered[len(ordered) * 9 // 10]:7.1f}"
        f"   p99 {ordered[len(ordered) * 99 // 100]:7.1f}   min {ordered[0]:7.1f}"
    )


def _bare_round_trips() -> list[float]:
    """Microseconds of 90 bytes there and back, with a thread that reads: what the kernel takes."""
    ours, theirs = channel_pair()
    with ours, theirs:
        if os.fork() == 0:
            ours.close()
            while data := os.read(theirs.reads, 1 << 16):
                os.write(theirs.writes, data)
            os._exit(0)
        theirs.close()
        arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()

        def read() -> None:
            for _ in range(ROUNDS):
                arrived.put(os.read(ours.reads, 1 << 16))

        threading.Thread(target=read).start()
        took = []
        for _ in range(ROUNDS):
            before = time.perf_counter()
            os.write(ours.writes, b"x" * 90)
            arrived.get()
            took.append((time.perf_counter() - before) * 1e6)
    os.wait()
    return took


def main() -> None:
    """Print the table."""
    here = Path(__file__).resolve()
    print(f"bare bytes there and back     us  {_percentiles(_bare_round_trips())}")
    with ForkedAgents("trio") as agents:
        for label, name in _MODES:
            with agents.start(f"{here}:{name}") as agent:
                print(f"permission round trip, {label:8} us  {_percentiles(_hear_out(agent))}")
                agent.wait()
        with agents.start(f"{here}:emit_many") as agent:
            print(f"events, one emit_text each       {_hear_out(agent):12,.0f} a second")
            agent.wait()
        started, stopped = [], []
        for _ in range(STARTS):
            before = time.perf_counter()
            with agents.start(f"{AGENTS / 'polite_sync.py'}:sleep") as agent:
                agent.hear(Ready)
                started.append((time.perf_counter() - before) * 1e3)
                agent.hear(Events)
                before = time.perf_counter()
                agent.cancel()
                agent.finish()
                stopped.append((time.perf_counter() - before) * 1e3)
        print(f"fork to ready, warm           ms  {_percentiles(started)}")
        print(f"cancel to exit, asleep        ms  {_percentiles(stopped)}")


if __name__ == "__main__":
    main()
