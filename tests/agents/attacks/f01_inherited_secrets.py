"""Find the caller's secrets in an environment or a command line: absent."""

import os

from attempt import Blocked, attempt

MARK = b"planted-"


def own() -> str:
    for name, value in os.environ.items():
        if value.startswith(MARK.decode()):
            return f"{name}={value}"
    raise Blocked("not in the environment")


def any_process(name: str) -> str:
    for pid in os.listdir("/proc"):
        if not pid.isdigit() or int(pid) in {os.getpid(), os.getppid()}:
            continue
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                data = file.read()
        except OSError:
            continue
        if MARK in data:
            found = data.index(MARK)
            return f"{pid}: {data[found : found + 40].decode(errors='replace')}"
    raise Blocked(f"in no {name}")


attempt(
    {
        "own environment": own,
        "environments": lambda: any_process("environ"),
        "command lines": lambda: any_process("cmdline"),
    }
)
