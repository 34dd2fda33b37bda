"""The figures of the spine, printed by one command: ``python tests/benchmarks/bench_spine.py``.

Everything is measured against a yardstick that runs in turn with it, in the same
process and minute: quote the ratios, not the milliseconds.  Nothing here asserts.
``--quick`` takes a tenth of the rounds.
"""

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import trio

from agentctl_protocol.channel import agent_end
from agentctl_protocol.messages import Events, Hello, Ready, Text
from agentctl_supervisor import RunSpec, Supervisor
from agentctl_supervisor.processes.run_cgroup import make_run_cgroup
from agentctl_supervisor.run.run import Run
from agentctl_supervisor.store.run_directory import Home

AGENTS = textwrap.dedent(
    """
    import time

    def first_instruction(_):
        return time.monotonic_ns()

    def polite(_):
        time.sleep(600)

    def asks(count):
        from agentctl_child import run
        times = []
        for number in range(count):
            begun = time.perf_counter()
            with run.tool_call("nothing", None):
                times.append(time.perf_counter() - begun)
        return times

    def emits(count):
        from agentctl_child import run
        for _ in range(count):
            run.emit_text("some words of a model")
    """
)
CROWD = """
import os, sys, time
for _ in range(int(sys.argv[1]) - 1):
    if not os.fork():
        break
time.sleep(600)
"""


def row(what: str, values: Sequence[float], unit: str = "ms", note: str = "") -> None:
    """Print one line: minimum, median and 99th percentile of *values*."""
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    figures = f"{ordered[0]:>9.3f} {statistics.median(ordered):>9.3f} {p99:>9.3f}"
    print(f"{what:<46} {figures} {unit:<4} {note}")


def ratio(values: Sequence[float], yardstick: Sequence[float]) -> str:
    """The median of the pairwise ratios, in words."""
    pairs = [value / other for value, other in zip(values, yardstick, strict=True)]
    return f"{statistics.median(pairs):.2f} x"


def ms(since: float) -> float:
    """Milliseconds since *since*, a `time.perf_counter`."""
    return (time.perf_counter() - since) * 1000


async def whole_run(supervisor: Supervisor, spec: RunSpec) -> float:
    """Milliseconds from the request to `Run.wait`."""
    begun = time.perf_counter()
    await (await supervisor.start(spec)).wait()
    return ms(begun)


async def bench_start(supervisor: Supervisor, rounds: int) -> None:
    """A program from request to report, next to a bare subprocess and bubblewrap."""
    ours, bare, bwrap = [], [], []
    bwrap_command = shutil.which("bwrap")
    for _ in range(rounds):
        ours.append(await whole_run(supervisor, RunSpec(argv=("/bin/true",))))
        begun = time.perf_counter()
        subprocess.run(["/bin/true"], check=True)
        bare.append(ms(begun))
        if bwrap_command:
            begun = time.perf_counter()
            subprocess.run(
                [bwrap_command, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/",
                 "--proc", "/proc", "/bin/true"],
                check=True,
            )  # fmt: skip
            bwrap.append(ms(begun))
    row("argv /bin/true: start to wait()", ours)
    row("  subprocess.run(/bin/true)", bare, note=f"ours is {ratio(ours, bare)}")
    if bwrap:
        row("  bwrap --unshare-all /bin/true", bwrap, note=f"ours is {ratio(ours, bwrap)}")


async def bench_first_instruction(supervisor: Supervisor, rounds: int, agents: Path) -> None:
    """A function from request to its first line."""
    values = []
    for _ in range(rounds):
        begun = time.monotonic_ns()
        run = await supervisor.start(RunSpec(target=f"{agents}:first_instruction"))
        values.append(((await run.wait()).value - begun) / 1e6)
    row("callable: start to first instruction", values)


async def members_up(run: Run, count: int) -> None:
    """Return once *count* processes of *run* are there (its cgroup tells)."""
    while len(run.members()) < count:  # noqa: ASYNC110 - nothing tells of a fork
        await trio.sleep(0.01)


async def bench_kill(supervisor: Supervisor, rounds: int, crowd: Path) -> None:
    """SIGKILL of flat trees until they are proven empty, next to a bare cgroup.kill."""
    for size in (1, 100, 1000):
        ours, bare = [], []
        for _ in range(max(3, rounds // (1 if size == 1 else 5 if size == 100 else 20))):
            run = await supervisor.start(RunSpec(argv=(sys.executable, str(crowd), str(size))))
            await members_up(run, size)
            begun = time.perf_counter()
            await run.kill()
            ours.append(ms(begun))
            bare.append(bare_cgroup_kill(crowd, size))
        note = (
            ""
            if not any(bare)
            else f"bare cgroup.kill {statistics.median(bare):.3f} ms, ours is {ratio(ours, bare)}"
        )
        row(f"kill of {size} processes until verified empty", ours, note=note)


def bare_cgroup_kill(crowd: Path, size: int) -> float:
    """Milliseconds from cgroup.kill of the same tree to ``populated 0``; 0 without cgroup v2."""
    group = make_run_cgroup(f"bench-{os.getpid()}")
    if group is None:
        return 0.0
    try:
        process = subprocess.Popen(
            ["sh", "-c", f'echo $$ > {group.path}/cgroup.procs; exec "$@"', "sh",
             sys.executable, str(crowd), str(size)],
        )  # fmt: skip
        while len((group.path / "cgroup.procs").read_text().split()) < size:
            time.sleep(0.01)
        begun = time.perf_counter()
        group.kill()
        while group.populated():
            pass
        taken = ms(begun)
        process.wait()
        return taken
    finally:
        group.remove()


async def bench_stop(supervisor: Supervisor, rounds: int, agents: Path) -> None:
    """A cooperative stop, and the whole command that asks for it."""
    values = []
    for _ in range(rounds):
        run = await supervisor.start(RunSpec(target=f"{agents}:polite"))
        await agent_ready(run)
        begun = time.perf_counter()
        await run.stop()
        values.append(ms(begun))
    row("stop of a polite function: request to report", values)
    values = []
    for _ in range(max(5, rounds // 5)):
        run = await supervisor.start(RunSpec(target=f"{agents}:polite"))
        await agent_ready(run)
        begun = time.perf_counter()
        await trio.run_process(
            [Path(sys.executable).with_name("agentctl"), "stop", run.id],
            capture_stdout=True,
            capture_stderr=True,
        )
        values.append(ms(begun))
    bare = []
    for _ in range(max(5, rounds // 5)):
        begun = time.perf_counter()
        await trio.run_process([sys.executable, "-c", "pass"])
        bare.append(ms(begun))
    row("whole `agentctl stop` command", values)
    row("  python -c pass", bare, note=f"ours is {ratio(values, bare)}")


async def agent_ready(run: Run) -> None:
    """Return once the agent's function is about to be called."""
    async for record in run.events():
        if isinstance(record.body, Ready):
            return


async def bench_gate(supervisor: Supervisor, rounds: int, agents: Path) -> None:
    """Permission round trips, measured inside the agent."""
    run = await supervisor.start(RunSpec(target=f"{agents}:asks", input=max(200, rounds * 20)))
    times = (await run.wait()).value
    row("permission round trip", [value * 1e6 for value in times], "us")


async def bench_events(supervisor: Supervisor, rounds: int, agents: Path) -> None:
    """Events per second from the channel into the log: batched by a raw sender, and by the SDK."""
    total, batch = rounds * 5000, 1000
    sender = [
        sys.executable,
        __file__,
        "--send-events",
        str(total),
        str(batch),
    ]
    for what, spec in (
        (f"raw, batches of {batch}", RunSpec(argv=tuple(sender), output_bytes=None)),
        ("raw, unbatched", RunSpec(argv=(*sender[:3], str(total // 10), "1"), output_bytes=None)),
        ("SDK emit_text", RunSpec(target=f"{agents}:emits", input=total // 5, output_bytes=None)),
    ):
        run = await supervisor.start(spec)
        first = last = 0
        report = await run.wait()
        async for record in run.events():
            if isinstance(record.body, Events):
                first = first or record.time_ns
                last = record.time_ns
        rate = report.log.events / max((last - first) / 1e9, 1e-9)
        print(f"events into the log, {what:<25} {rate:>12,.0f} /s   ({report.log.events:,} events)")


def send_events(total: int, batch: int) -> None:
    """The raw sender: frames made beforehand, so that only the other end is measured."""
    reads, writes = map(int, os.environ["AGENTCTL_CHANNEL_FD"].split(","))
    channel = agent_end()
    os.write(writes, channel.send(Hello(version=1)))
    os.read(reads, 1 << 16)
    os.write(writes, channel.send(Ready()))
    words = Text(text="some words of a model")
    frames = bytearray()
    for first in range(1, total + 1, batch):
        frames += channel.send(Events(first=first, events=[words] * batch))
    unsent = memoryview(frames)
    while unsent:
        unsent = unsent[os.write(writes, unsent) :]


async def main(rounds: int) -> None:
    """Print every figure."""
    print(f"{'':<46} {'min':>9} {'median':>9} {'p99':>9}")
    with tempfile.TemporaryDirectory() as directory:
        os.environ["AGENTCTL_HOME"] = str(Path(directory, "home"))
        agents, crowd = Path(directory, "bench_agents.py"), Path(directory, "crowd.py")
        agents.write_text(AGENTS)
        crowd.write_text(CROWD)
        async with Supervisor.open(Home.open(create=True)) as supervisor:
            await whole_run(supervisor, RunSpec(argv=("/bin/true",)))
            benches: list[Callable[[], Awaitable[None]]] = [
                lambda: bench_start(supervisor, rounds),
                lambda: bench_first_instruction(supervisor, rounds, agents),
                lambda: bench_kill(supervisor, rounds, crowd),
                lambda: bench_stop(supervisor, rounds, agents),
                lambda: bench_gate(supervisor, rounds, agents),
                lambda: bench_events(supervisor, rounds, agents),
            ]
            for bench in benches:
                await bench()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--send-events"]:
        with contextlib.suppress(BrokenPipeError):
            send_events(int(sys.argv[2]), int(sys.argv[3]))
        sys.exit()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    trio.run(main, 10 if parser.parse_args().quick else 100)
