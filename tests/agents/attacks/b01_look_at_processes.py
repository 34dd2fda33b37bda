"""List the host's processes and read environment, files, memory map of one: not there."""

import os

from attempt import FACTS, Blocked, attempt

VICTIM = FACTS["victim_pid"]


def read(name: str) -> str:
    with open(f"/proc/{VICTIM}/{name}", "rb") as file:
        data = file.read()
    if not data:
        raise Blocked("empty")
    return data.decode(errors="replace")


def listed() -> None:
    if str(VICTIM) not in os.listdir("/proc"):
        raise Blocked("not listed")


def standard_input() -> str:
    with open(f"/proc/{VICTIM}/fd/0") as file:
        return file.read()


def process_descriptor() -> None:
    os.pidfd_open(VICTIM)


attempt(
    {
        "listdir": listed,
        "status": lambda: read("status")[:20],
        "stat": lambda: read("stat"),
        "cmdline": lambda: read("cmdline"),
        "environ": lambda: read("environ"),
        "maps": lambda: read("maps")[:80],
        "exe": lambda: os.readlink(f"/proc/{VICTIM}/exe"),
        "cwd": lambda: os.readlink(f"/proc/{VICTIM}/cwd"),
        "root": lambda: " ".join(os.listdir(f"/proc/{VICTIM}/root"))[:80],
        "fd": standard_input,
        "pidfd_open": process_descriptor,
    }
)
