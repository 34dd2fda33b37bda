"""See, signal, read or trace another run of the same caller: as much out of reach as the host."""

import os
import resource
import signal

from attempt import FACTS, Blocked, attempt, checked, libc

OTHER = FACTS["other_pid"]
_PTRACE_SEIZE = 0x4206


def listed() -> None:
    if str(OTHER) not in os.listdir("/proc"):
        raise Blocked("not listed")


def read(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(100).decode(errors="replace")


def stop() -> None:
    os.kill(OTHER, signal.SIGSTOP)
    os.kill(OTHER, signal.SIGCONT)


attempt(
    {
        "listdir": listed,
        "environ": lambda: read(f"/proc/{OTHER}/environ"),
        "its workspace": lambda: read(f"{FACTS['other_workspace']}/note"),
        "its workspace, writing": lambda: os.mkdir(f"{FACTS['other_workspace']}/made"),
        "signal 0": lambda: os.kill(OTHER, 0),
        "SIGSTOP": stop,
        "prlimit": lambda: resource.prlimit(OTHER, resource.RLIMIT_CPU),
        "setpriority": lambda: os.setpriority(os.PRIO_PROCESS, OTHER, max(5, os.nice(0))),
        "ptrace": lambda: checked(libc.ptrace(_PTRACE_SEIZE, OTHER, None, None)),
    }
)
