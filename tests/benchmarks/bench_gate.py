"""What the gate and conditions cost a run: ``python tests/benchmarks/bench_gate.py [--quick]``.

Permission round trips are measured in the agent, with and without rules, in turn.  What a
streamed chunk costs is measured twice: in the agent, as the time from its first chunk until
the supervisor's end has the last one, and in the supervisor, as CPU time, from the start of
the run to its end.  The yardstick of the first is a call of a function that does nothing.
Nothing here asserts.
"""

import argparse
import os
import statistics
import tempfile
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import trio

from agentctl_supervisor import RunSpec, Supervisor
from agentctl_supervisor.store.run_directory import Home
from bench_conditions import TREE
from bench_spine import row

AGENTS: Final = textwrap.dedent(
    """
    import time
    from agentctl_child import run

    REQUEST = {"cmd": "ls -l", "cwd": "/workspace", "timeout": 30}

    def asks(count):
        times = []
        for number in range(count):
            begun = time.perf_counter()
            with run.tool_call("shell", REQUEST):
                times.append(time.perf_counter() - begun)
        return times

    def nothing(text, source=""):
        pass

    def streams(count):
        with run.model_call("stub", "prompt") as call:
            begun = time.perf_counter()
            for _ in range(count):
                nothing("a token ", source="critic")
            bare = time.perf_counter() - begun
            begun = time.perf_counter()
            for _ in range(count):
                run.emit_text("a token ", source="critic")
            run.flush()
            return [bare, time.perf_counter() - begun]

    def silent(_):
        with run.model_call("stub", "prompt"):
            return [0, 0]
    """
)
RULES: Final[dict[str, Any]] = {
    "calls": 1_000_000,
    "tokens": 1_000_000_000,
    "calls_of": {"shell:rm *": 3, "sh*": 900_000},
    "allow": ["read_*", "search:{*}", "shell:{*}"],
    "deny": ["shell:*rm -rf*", "shell:*sudo*", "write_file:*/.git/*"],
    "approve": ["shell:*git push*", "mail"],
}


async def value_of(supervisor: Supervisor, spec: RunSpec) -> Any:
    """What the function of *spec* returns."""
    report = await (await supervisor.start(spec)).wait()
    assert report.value is not None, report.error or report.detail
    return report.value


async def bench_asks(supervisor: Supervisor, agents: Path, rounds: int, count: int) -> None:
    """One row without rules, one with."""
    times: dict[str, list[float]] = {"without rules": [], "with 10 rules": []}
    for _ in range(rounds):
        for what, rules in (("without rules", {}), ("with 10 rules", RULES)):
            spec = RunSpec(target=f"{agents}:asks", input=count, **rules)
            times[what] += [s * 1e6 for s in await value_of(supervisor, spec)]
    for what, values in times.items():
        row(f"permission round trip, {what}", values, "us")


async def bench_chunks(supervisor: Supervisor, agents: Path, rounds: int, count: int) -> None:
    """Two rows without a condition, two with one of ten leaves."""
    wall: dict[str, list[float]] = {"no condition": [], "10 leaves": []}
    cpu: dict[str, list[float]] = {"no condition": [], "10 leaves": []}
    bare: list[float] = []
    for _ in range(rounds):
        for what, condition in (("no condition", None), ("10 leaves", TREE)):
            spent = []
            for function in ("silent", "streams"):
                spec = RunSpec(
                    target=f"{agents}:{function}",
                    input=count,
                    stop_when=condition,
                    output_bytes=None,
                )
                begun = time.process_time()
                nothing, took = await value_of(supervisor, spec)
                spent.append(time.process_time() - begun)
            bare.append(nothing / count * 1e6)
            wall[what].append(took / count * 1e6)
            cpu[what].append((spent[1] - spent[0]) / count * 1e6)
    row("a call of a function that does nothing", bare, "us")
    for told, figures in (("agent, wall", wall), ("supervisor, CPU", cpu)):
        for what, values in figures.items():
            row(f"a streamed chunk, {told}, {what}", values, "us")
    print(f"  the condition adds {_added(cpu['no condition'], cpu['10 leaves']):.2f} us a chunk")


def _added(without: Sequence[float], with_it: Sequence[float]) -> float:
    return statistics.median(b - a for a, b in zip(without, with_it, strict=True))


async def main(rounds: int) -> None:
    """Print every figure."""
    print(f"{'':<46} {'min':>9} {'median':>9} {'p99':>9}")
    with tempfile.TemporaryDirectory() as directory:
        agents = Path(directory, "bench_gate_agents.py")
        agents.write_text(AGENTS)
        home = Home.open({"AGENTCTL_HOME": str(Path(directory, "home"))}, create=True)
        async with Supervisor.open(home) as supervisor:
            await bench_asks(supervisor, agents, rounds, 1000)
            await bench_chunks(supervisor, agents, rounds, 20_000)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    os.environ.setdefault("AGENTCTL_SANDBOX", "basic")
    trio.run(main, 1 if parser.parse_args().quick else 10)
