"""The title that ps shows for a process that was forked and never executed a program.

The kernel reads a command line from the memory that exec left behind. A title therefore fits where
the spawner's own arguments were; the spawner is started with a long ``--room`` for that. The
memory of the spawner's environment is wiped. It holds the supervisor's secrets and would be every
agent's /proc/self/environ.
"""

import ctypes
import os
from typing import Final

from agentctl_child.sandbox import prctl

_SHORT_NAME_BYTES: Final = 15


class _Area:
    """A range of this process's memory."""

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.size = max(end - start, 0)

    def write(self, text: bytes) -> None:
        if self.size:
            kept = text[: self.size - 1]
            ctypes.memmove(self.start, kept.ljust(self.size, b"\0"), self.size)


def _areas() -> tuple[_Area, _Area]:
    with open("/proc/self/stat", "rb") as file:
        text = file.read()
    # Fields 48 to 51 of proc(5): arg_start, arg_end, env_start, env_end.
    fields = text[text.rindex(b")") + 2 :].split()
    arguments, environment = fields[45:47], fields[47:49]
    return (
        _Area(int(arguments[0]), int(arguments[1])),
        _Area(int(environment[0]), int(environment[1])),
    )


_arguments: _Area | None = None


def prepare() -> None:
    """Find the room for titles and wipe the environment. Call it once, before the first fork."""
    global _arguments
    _arguments, environment = _areas()
    # First remove the pointers to that memory, then wipe the memory.
    os.environ.clear()
    environment.write(b"")


def set_title(short: str, title: str) -> None:
    """Show ``title`` as the command line and ``short`` as the name."""
    prctl.set_name(short.encode()[:_SHORT_NAME_BYTES])
    if _arguments is not None:
        _arguments.write(title.encode(errors="replace"))
