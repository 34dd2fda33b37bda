"""Which files agentctl's own processes open, and which programs they execute, as strace sees it.

*Own* is every process from its beginning to the moment at which it has executed a program of
somebody else's, or been put under a filter of system calls, as init is before it forks the agent.
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MAKING: Final = ("clone", "clone3", "fork", "vfork")
_OPENING: Final = ("open", "openat", "openat2", "creat", "uselib")
_TRACED: Final = ",".join((*_MAKING, *_OPENING, "execve", "execveat", "seccomp"))
_OURS: Final = re.compile(r"agentctl_(?:supervisor|child|protocol)|bin/agentctl\b")
_CALL: Final = re.compile(r"(?P<call>\w+)\((?P<arguments>.*)\) += (?P<result>-?\d+)(?P<more>.*)")
_OUTSIDE: Final = re.compile(r" /\* (\d+) in strace's PID NS \*/")
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_AT: Final = re.compile(r"(?:AT_FDCWD|\d+)<((?:[^<>\\]|\\.)*)>, ")
_RESULT: Final = re.compile(r"<(/(?:[^<>\\]|\\.)*)>")
_FLAG: Final = re.compile(r"\bO_\w+")
_RESOLVE: Final = re.compile(r"\bRESOLVE_\w+")


@dataclass(frozen=True)
class Opened:
    """A path that was opened, there or not, and how: flags of open(2) and openat2(2)."""

    path: str
    flags: frozenset[str]
    call: str

    @property
    def reads(self) -> bool:
        """Whether it is more than a handle."""
        return "O_PATH" not in self.flags

    @property
    def lists(self) -> bool:
        """Whether it is for a directory only."""
        return "O_DIRECTORY" in self.flags


@dataclass(frozen=True)
class Trace:
    """What was seen.  ``opened``: also what was not there.  ``executed``: programs, successfully.

    ``exit_code``, ``output``: of the command.
    """

    opened: tuple[Opened, ...]
    executed: tuple[str, ...]
    exit_code: int
    output: str


def traced(
    argv: Sequence[str],
    directory: Path,
    *,
    cwd: Path,
    environment: Mapping[str, str],
    uid: int | None = None,
    within_s: float = 300.0,
) -> Trace:
    """Run *argv* as *uid* to its end, and that of all that it starts; *directory* is for notes.

    Strace needs to be root's: keepers are not dumpable, and it would not see their paths.
    """
    notes = directory / "trace"
    user = [] if uid is None else [f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    done = subprocess.run(
        [
            *("strace", "-ff", "-qq", "-y", "-s", "4096", "-e", f"trace={_TRACED}"),
            *("--decode-pids=pidns", "-e", "signal=none", "-o", str(notes)),
            *(["setpriv", *user] if user else []),
            *argv,
        ],
        cwd=cwd,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=within_s,
        check=False,
    )
    processes = {
        int(path.suffix[1:]): _Process(path.read_text("utf-8", "replace"))
        for path in directory.glob("trace.*")
    }
    agents = [child for process in processes.values() for child in process.agents_children]
    while agents:
        agent = processes.pop(agents.pop(), None)
        agents += [*agent.children, *agent.agents_children] if agent else []
    return Trace(
        tuple(one for process in processes.values() for one in process.opened),
        tuple(one for process in processes.values() for one in process.executed),
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
    )


class _Process:
    """What one process, or thread, did while it was our own, and which others it made."""

    def __init__(self, text: str) -> None:
        self.opened: list[Opened] = []
        self.executed: list[str] = []
        self.children: list[int] = []
        self.agents_children: list[int] = []
        self._is_own = True
        for line in text.splitlines():
            if found := _CALL.match(line):
                self._see(found["call"], found["arguments"], int(found["result"]), found["more"])

    def _see(self, call: str, arguments: str, result: int, more: str) -> None:
        if call in _MAKING:
            if result > 0:
                seen_by_us = _OUTSIDE.search(more)
                child = int(seen_by_us[1]) if seen_by_us else result
                (self.children if self._is_own else self.agents_children).append(child)
        elif not self._is_own:
            return
        elif call == "seccomp":
            if result >= 0 and "SECCOMP_SET_MODE_FILTER" in arguments:
                self._is_own = False
        elif call in ("execve", "execveat"):
            if result < 0:
                return
            self._is_own = bool(_OURS.search(arguments)) or "setpriv" in arguments
            if self._is_own:
                self.executed.append(_path(arguments))
        else:
            flags = {*_FLAG.findall(arguments), *_RESOLVE.findall(arguments)}
            # As the kernel calls it, where it was opened: it may have been by /proc/self/fd.
            at = _RESULT.match(more)
            self.opened.append(Opened(at[1] if at else _path(arguments), frozenset(flags), call))


def _path(arguments: str) -> str:
    """The first path in *arguments*, after the directory that it is relative to."""
    quoted = _QUOTED.search(arguments)
    assert quoted is not None, arguments
    around = _AT.match(arguments)
    return os.path.normpath(os.path.join(around[1] if around else "/", quoted[1]))
