"""``agentctl run`` in another process, for tests of what other commands do to its run."""

import os
import signal
import subprocess
from types import TracebackType
from typing import Any, Self

from agentctl_testkit import MARKER_VARIABLE, AgentctlHome, alive

STUBBORN = "trap '' TERM; echo up; while :; do sleep 0.1; done"
SLEEPER = "echo up; exec sleep 60"


class Foregrounds:
    """Starts ``agentctl run`` any number of times; what is left of them at the end is killed."""

    def __init__(self, home: AgentctlHome, marker: str) -> None:
        self._home = home
        self._marker = marker
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            # Also closes the pipes.
            process.communicate()

    def start(
        self, *arguments: str, environment: dict[str, str] | None = None, **popen: Any
    ) -> "subprocess.Popen[bytes]":
        """``agentctl run`` with these arguments."""
        marked = {MARKER_VARIABLE: self._marker, **(environment or {})}
        process = self._home.start("run", *arguments, environment=marked, **popen)
        self._started.append(process)
        return process

    def up(
        self, script: str, *options: str, environment: dict[str, str] | None = None
    ) -> "subprocess.Popen[bytes]":
        """``agentctl run OPTIONS -- sh -c SCRIPT``, once the script has said ``up``."""
        process = self.start(*options, "--", "sh", "-c", script, environment=environment)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    def left(self) -> list[int]:
        """What is alive of the runs, as opposed to the processes that supervise them."""
        own = {process.pid for process in self._started}
        return [found.pid for found in alive(self._marker) if found.pid not in own]


def end_of(process: "subprocess.Popen[bytes]", within_s: float = 30.0) -> tuple[int, str]:
    """Exit code and standard error of *process*."""
    _, err = process.communicate(timeout=within_s)
    return process.returncode, err.decode()


def freeze(process: "subprocess.Popen[bytes]") -> None:
    """SIGSTOP, and wait until it stands still."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
