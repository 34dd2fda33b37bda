"""A start at each sandbox level beside other sandboxes; see ``--help``.

One round starts ``/bin/true`` once by each of them, in turn; what counts is the ratio to
bubblewrap in the same round.  Others are measured where they are to be found: ``bwrap`` and
``nsjail`` on PATH, ``sandlock`` by the interpreter that $SANDLOCK_PYTHON names.  Nothing here
asserts.  ``--quick`` takes a tenth of the rounds.
"""

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import trio

from agentctl_protocol.vocabulary import Sandbox
from agentctl_supervisor import RunSpec, Supervisor
from agentctl_supervisor.store.run_directory import Home

BWRAP: Final = (
    *("--unshare-user", "--unshare-all", "--disable-userns", "--cap-drop", "ALL"),
    *("--die-with-parent", "--new-session", "--clearenv"),
    *("--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib"),
    *("--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"),
    *("--remount-ro", "/proc", "--remount-ro", "/"),
)
NSJAIL: Final = (
    *("--really_quiet", "-Mo", "--user", "65533", "--group", "65533"),
    *("-R", "/usr", "-R", "/bin", "-R", "/lib", "-R", "/lib64", "-T", "/tmp"),
    "--disable_clone_newcgroup",
)
SANDLOCK: Final = """
import sys, time
from sandlock import Sandbox
box = Sandbox(fs_readable=["/usr", "/bin", "/lib", "/lib64", "/etc"], clean_env=True)
for line in sys.stdin:
    begun = time.perf_counter()
    result = box.run(["/bin/true"])
    print((time.perf_counter() - begun) * 1000, flush=True)
"""


def timed(command: list[str]) -> float:
    """Milliseconds that *command* takes."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return (time.perf_counter() - begun) * 1000


async def ours(supervisor: Supervisor, level: Sandbox, workspace: str) -> float:
    """Milliseconds from the request to the report."""
    begun = time.perf_counter()
    confined = level in (Sandbox.STRICT, Sandbox.STANDARD)
    spec = RunSpec(
        argv=("/bin/true",), sandbox=level, cwd=workspace,
        workspace=workspace if confined else None,
    )  # fmt: skip
    report = await (await supervisor.start(spec)).wait()
    if report.exit_code != 0:
        raise SystemExit(f"{level}: {report.detail}")
    return (time.perf_counter() - begun) * 1000


async def main(rounds: int) -> None:
    """All rounds, then the table."""
    figures: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        workspace = directory / "work"
        workspace.mkdir()
        commands = {"subprocess.run": ["/bin/true"]}
        for name, arguments in (("bwrap", BWRAP), ("nsjail", NSJAIL)):
            if found := shutil.which(name):
                separator = ["--"] if name == "nsjail" else []
                commands[name] = [found, *arguments, *separator, "/bin/true"]
        lock = None
        if python := os.environ.get("SANDLOCK_PYTHON"):
            lock = stack.enter_context(
                subprocess.Popen(
                    [python, "-c", SANDLOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
        home = Home.open({"AGENTCTL_HOME": str(directory / "home")}, create=True)
        async with Supervisor.open(home) as supervisor:
            for _ in range(rounds):
                for level in (Sandbox.STRICT, Sandbox.STANDARD, Sandbox.BASIC):
                    taken = await ours(supervisor, level, str(workspace))
                    figures.setdefault(f"agentctl {level}", []).append(taken)
                for name, command in commands.items():
                    figures.setdefault(name, []).append(timed(command))
                if lock is not None and lock.stdin and lock.stdout:
                    lock.stdin.write(b"\n")
                    lock.stdin.flush()
                    figures.setdefault("sandlock", []).append(float(lock.stdout.readline()))
        if lock is not None and lock.stdin:
            lock.stdin.close()
    yardstick = figures.get("bwrap", figures["subprocess.run"])
    print(f"{'/bin/true, start to end':26}{'min':>9}{'median':>9}   median ratio to bwrap")
    for name, values in figures.items():
        ratio = statistics.median(a / b for a, b in zip(values, yardstick, strict=True))
        print(f"{name:26}{min(values):9.2f}{statistics.median(values):9.2f}   {ratio:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true")
    trio.run(main, 10 if parser.parse_args(sys.argv[1:]).quick else 100)
