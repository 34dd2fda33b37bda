"""Runs a Python snippet that nobody trusts, for two seconds at most, and says what came of it.

    echo 'print("hi"); 6 * 7' | python examples/run_tool.py

A host program for the code that a model writes.  Whatever the snippet starts, forks or ignores,
nothing of it is left when this program goes on.  It has an empty directory to itself, and neither
your files nor your network.
"""

import json
import sys
import tempfile
from pathlib import Path

import trio

from agentctl_supervisor import Report, RunSpec, Sandbox, Supervisor

LIMIT_S = 2.0


async def run_tool(code: str) -> tuple[Report, bytes, bytes]:
    """What came of *code*: the report, and what it wrote to stdout and stderr."""
    with tempfile.TemporaryDirectory() as workspace:
        spec = RunSpec(
            target=f"{Path(__file__).with_name('snippet.py')}:evaluate",
            input=code,
            sandbox=Sandbox.STRICT,  # or no run: never less because the machine has less
            workspace=workspace,
            time_s=LIMIT_S,
            grace_s=0.2,  # from the limit on: to end when asked, and after SIGTERM
            term_grace_s=0.2,
            output_bytes=1 << 20,
            capture_bytes=10_000,  # the end of it is what we look at
        )
        # A host that runs many tools opens one supervisor and keeps it.
        async with Supervisor.open() as supervisor:
            run = await supervisor.start(spec)
            report = await run.wait()
            return report, run.stdout, run.stderr


def main() -> int:
    """Run what is on stdin; the exit code is what ``agentctl run`` would give."""
    report, stdout, stderr = trio.run(run_tool, sys.stdin.read())
    print("result:", report.result, "-", report.detail)
    print("value: ", json.dumps(report.value))
    print("stdout:", stdout.decode(errors="replace").rstrip())
    print("stderr:", stderr.decode(errors="replace").rstrip())
    if report.error:
        print("error: ", report.error.rstrip())
    if report.processes.survivors:  # a process that hangs in the kernel, for example
        print("alive: ", report.survivor_list)
    return report.process_exit_code


if __name__ == "__main__":
    sys.exit(main())
