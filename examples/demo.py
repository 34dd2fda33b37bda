"""Starts an agent that does not want to be stopped, stops it, and looks for survivors.

Every ``agentctl`` command is printed before it runs.  What is still alive is not asked
of agentctl: this program puts a marker into the agent's environment and looks for it in
all of ``/proc``.  State goes to a temporary directory, which is removed.
"""

import contextlib
import os
import secrets
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

RUNAWAY = Path(__file__).with_name("runaway.py")
AGENTCTL = os.path.join(os.path.dirname(sys.executable), "agentctl")
MARKER = f"demo-{secrets.token_hex(8)}"
GONE_WITHIN_S = 1.0


def main() -> int:
    """Play both acts; 0 if no process was left by either."""
    state = Path(tempfile.mkdtemp(prefix="agentctl-demo-"))
    os.environ["AGENTCTL_HOME"] = str(state)
    try:
        survivors = stop_a_runaway() + kill_the_supervisor()
    finally:
        shutil.rmtree(state)
    print()
    if survivors:
        print(f"{survivors} processes survived. That is a bug: please report it.")
        return 1
    print("Nothing survived.")
    return 0


def stop_a_runaway() -> int:
    """Stop a run from outside; how many of its processes are left."""
    say("1. An agent that forks, hides and ignores SIGTERM. Another terminal stops it.")
    with running("demo") as run:
        print(f"   {len(alive())} processes carry its marker in /proc")
        agentctl("ps")
        agentctl("stop", "demo")
        left = alive()
        print(f"   {len(left)} processes carry its marker in /proc")
        run.wait()
        print(f"   the run's own command ended with {run.returncode}: 128 + 9, SIGKILL was needed")
    agentctl("show", "demo")
    return len(left)


def kill_the_supervisor() -> int:
    """Kill a run's supervisor; how many of the run's processes are left."""
    say("2. The same agent, and its supervisor is killed with SIGKILL.")
    with running("orphan") as run:
        watched = [os.pidfd_open(pid) for pid in alive()]
        print(f"   {len(watched)} processes carry its marker in /proc")
        print(f"\n$ kill -KILL {run.pid}", flush=True)
        run.kill()
        run.wait()
    for descriptor in watched:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        poller.poll(GONE_WITHIN_S * 1000)  # returns as soon as the process is dead
        os.close(descriptor)
    left = alive()
    print(f"   {len(left)} processes carry its marker in /proc")
    agentctl("ps", "-a")
    return len(left)


@contextlib.contextmanager
def running(name: str) -> Iterator["subprocess.Popen[bytes]"]:
    """``agentctl run`` the runaway in the background, its whole tree up; ends with the block."""
    program = (os.path.relpath(sys.executable), os.path.relpath(RUNAWAY))
    options = ("--name", name, "--term-grace", "1s", "--env", "DEMO_MARKER")
    arguments = ("run", "-q", *options, "--", *program)
    show(*arguments, "&")
    with subprocess.Popen(
        command(*arguments),
        env={**os.environ, "DEMO_MARKER": MARKER},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    ) as run:
        try:
            assert run.stdout is not None
            print(run.stdout.readline().decode(), end="", flush=True)
            yield run
        finally:
            run.kill()


def agentctl(*arguments: str) -> None:
    """Print a command, then run it."""
    show(*arguments)
    subprocess.run(command(*arguments), stderr=subprocess.STDOUT, check=False)


def command(*arguments: str) -> tuple[str, ...]:
    """The command line for the ``agentctl`` that is installed with this interpreter."""
    return (AGENTCTL, *arguments)


def show(*arguments: str) -> None:
    """Print a command as one would type it."""
    quoted = (word if word == "&" else shlex.quote(word) for word in arguments)
    print("\n$ agentctl", *quoted, flush=True)


def say(headline: str) -> None:
    """Print what comes next."""
    print(f"\n{headline}", flush=True)


def alive() -> list[int]:
    """Processes of the agent: those whose environment holds the marker, except supervisors."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            # A zombie, and a process that is gone, has no environment to read.
            marked = entry.name.isdigit() and MARKER.encode() in (entry / "environ").read_bytes()
            supervisor = marked and b"/agentctl\0" in (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if marked and not supervisor:
            found.append(int(entry.name))
    return found


if __name__ == "__main__":
    sys.exit(main())
