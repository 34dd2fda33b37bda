"""Runs whose set-up fails at a chosen system call, or whose keepers are killed at a chosen step,
and what must be true of the host afterwards.

One supervisor serves them all: what it, or its spawner, would lose at a failure adds up.  The
calls are those of a real start, in the order in which it told them (`injected_failures`).
"""

import contextlib
import enum
import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, Self

from agentctl_testkit import (
    MARKER_VARIABLE,
    RollCall,
    command_of,
    descriptors,
    new_marker,
    wait_until_gone,
)
from agentctl_testkit.attacks import Caller, Server
from agentctl_testkit.clock import Stopwatch, TimeLimit
from agentctl_testkit.faults import children

ERRORS: Final = ("EPERM", "ENOSYS", "ENOSPC", "EINTR")
PATIENCE_S: Final = 10.0
_QUIET_S: Final = 0.3
STEP_DELAY_S: Final = 0.03
"""How long a set-up waits at each step at which it can be struck."""

_SCRIPT: Final = "echo text > made && rm made && echo it works"
_WAYS_OUT: Final = re.compile(r"agentctl doctor|--sandbox |AGENTCTL_CONTAINMENT|sysctl |try again")
_SHARED_PLACES: Final = ("/", "/dev", "/etc", "/tmp")
"""Where a private root has files, too: who took the host's for it would make them there."""

_IN_OWN_MOUNT_NAMESPACE: Final = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def checked(result):
    if result:
        raise OSError(ctypes.get_errno(), "mount namespace")
checked(libc.unshare(0x20000))
checked(libc.mount(b"none", b"/", None, 0x44000, None))  # private: no news of the host's
checked(libc.mount(b"none", b"/", None, 0x104000, None))  # shared: all news of runs
ready, uid, *argv = sys.argv[1:]
os.set_inheritable(int(ready), False)
if int(uid):
    os.setgroups([])
    os.setgid(int(uid))
    os.setuid(int(uid))
os.execv(argv[0], argv)
"""
"""READY UID PROGRAM...: the descriptor READY is closed once the program runs, for UID."""


class Victim(enum.Enum):
    """Whom to kill: each is the parent of the next."""

    SUPERVISOR = "supervisor"
    SPAWNER = "spawner"
    WARDEN = "warden"
    INIT = "init"


class Struck:
    """The supervisor of a caller at a level, of whose runs calls can be made to fail."""

    def __init__(
        self, caller: Caller, directory: Path, level: str, server: Server, told: RollCall
    ) -> None:
        self.caller = caller
        self.directory = directory
        self.level = level
        self.marker = new_marker()
        self._server = server
        self._told = told
        self._said = directory / "stderr"
        self._workspace = directory / "workspace"
        self._usual: dict[str, Any] = {}
        self._still: list[tuple[str, int, int]] = []
        # Open, it shows the mounts of the supervisor's namespace after its end, too.
        self._mountinfo = os.open(f"/proc/{server.pid}/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        self._mounts = self._mounted()
        self._names = _names_in_a_run(caller) if level == "strict" else frozenset()
        self._places = self._listing()

    def close(self) -> None:
        """Forget its mounts."""
        os.close(self._mountinfo)

    def settle(self) -> None:
        """See what is usual: the layers of a run, and what is open between two."""
        self._usual = self._start()
        self._start()  # what is opened once is open now
        self._still = self._look()
        unchanged = Stopwatch()
        # The last run's pipes are closed by a thread of its own, in its own time.
        while unchanged.elapsed_s < _QUIET_S:
            if (now := self._look()) != self._still:
                self._still, unchanged = now, Stopwatch()
            time.sleep(0.005)

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, caller: Caller, level: str, containment: str, steps: Sequence[str] = ()
    ) -> Iterator[Self]:
        """One in a directory of its own.  *steps*: those that `kill` can strike at."""
        with contextlib.ExitStack() as stack:
            made = tempfile.mkdtemp(prefix="struck-", dir=caller.directory)
            directory = Path(made)
            stack.callback(shutil.rmtree, directory)
            directory.chmod(0o755)
            workspace = directory / "workspace"
            workspace.mkdir()
            # In the workspace, so that the steps of a private root can be told, too.
            told = stack.enter_context(RollCall(workspace))
            # With a writer of our own the FIFO never looks as if everybody had left.
            writer = os.open(told.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            stack.callback(os.close, writer)
            for path in (directory, workspace, told.path):
                if caller.uid != os.geteuid():
                    os.chown(path, caller.uid, caller.uid)
            (directory / "plan").touch()
            environment = {
                **caller.environment,
                "AGENTCTL_CONTAINMENT": containment,
                "AGENTCTL_DEBUG": "1",
                "AGENTCTL_FAILPOINTS_FILE": str(directory / "plan"),
                "AGENTCTL_FAILPOINTS": ",".join(f"{step}={STEP_DELAY_S}" for step in steps),
                "AGENTCTL_FAILPOINTS_FIFO": str(told.path),
            }
            said = stack.enter_context((directory / "stderr").open("wb"))
            server = stack.enter_context(_server(caller, directory / "home", environment, said))
            struck = cls(caller, directory, level, server, told)
            stack.callback(struck.close)
            yield struck

    def plan(self, words: str) -> None:
        """What is to fail from now on."""
        (self.directory / "plan").write_text(words)

    def calls(self) -> list[str]:
        """The calls of one start, in order, each with the process that made it."""
        self.plan("trace")
        before = self._said.stat().st_size
        answer = self._start()
        self.plan("")
        with self._said.open(encoding="utf-8") as file:
            file.seek(before)
            # An agent that confines itself has its own standard error by then.
            lines = [*file, *answer["stderr"].splitlines()]
        return [line.split()[1] for line in lines if line.startswith("syscall ")]

    def fault(self, failure: str) -> str:
        """What is wrong after a run whose call fails as in *failure*; nothing if all is well."""
        self.plan(f"syscall:{failure}")
        answer = self._start()
        self.plan("")
        return self._fault_of(answer, interrupted=failure.endswith(":EINTR")) or self._left()

    def kill(self, victim: Victim, step: str) -> str:
        """What is wrong after *victim* was killed when a run had come to *step*."""
        self._told.hear()
        self._told.lines.clear()
        number = self._server.start(self._spec("true"))
        self._told.wait_until(lambda: f"at {step}" in self._told.lines, step)
        pid = self._pid_of(victim)
        if pid is None:
            return "the victim is not there"
        os.kill(pid, signal.SIGKILL)
        if victim is Victim.SUPERVISOR:
            return ""
        answer = self._server.answer(number)
        report = answer.get("report") or {"result": "", "detail": answer.get("error")}
        if "Traceback" in answer.get("stderr", "") or not report["detail"]:
            return f"not told: {answer}"
        if report["result"] == "succeeded" or report.get("survivor_list"):
            return f"it is said to be over, and is not: {report}"
        if victim is Victim.SPAWNER:
            self._start()  # for which another one comes up
        return self._left()

    def _pid_of(self, victim: Victim) -> int | None:
        pid = self._server.pid
        for _ in range(list(Victim).index(victim)):
            below = children(pid)
            if not below:
                return None
            pid = below[0]
        return pid

    def litter(self) -> list[str]:
        """What is left on the host that was not there before the first run."""
        keepers = f"--supervisor-pid\0{self._server.pid}\0"
        ids = [path.name for path in (self.directory / "home/runs").glob("r-*")]
        gone = (self.marker, *ids) if self._usual else (self.marker, *ids, keepers)
        found = [f"alive: {process}" for process in wait_until_gone(*gone, within_s=5)]
        limit = TimeLimit(PATIENCE_S)
        while more := (self._mounted() - self._mounts) | (self._listing() - self._places):
            if limit.left_s <= 0:
                found += sorted(f"left: {what}" for what in more)
                break
            time.sleep(0.05)
        if self._usual and self._fault_of(self._start(), interrupted=True):
            found.append("the next run does not work")
        return found

    def _spec(self, script: str) -> dict[str, Any]:
        return {
            "argv": ["/bin/sh", "-c", script],
            "sandbox": self.level,
            "workspace": str(self._workspace),
            "cwd": str(self._workspace),
            "env": {"PATH": os.defpath, MARKER_VARIABLE: self.marker},
            "time_s": 60,
        }

    def _start(self) -> dict[str, Any]:
        return self._server.answer(self._server.start(self._spec(_SCRIPT)))

    def _fault_of(self, answer: dict[str, Any], *, interrupted: bool) -> str:
        report = answer.get("report")
        if report is None:
            return f"the supervisor: {answer['error']}"
        said = answer["stdout"] + answer["stderr"]
        if report["result"] == "succeeded":
            usual = self._usual["report"]["layers"]
            if report["layers"] != usual or answer["stdout"] != "it works\n":
                return f"weaker, in silence: {set(usual) - set(report['layers'])} {said!r}"
            return ""
        detail = report["detail"] or ""
        if (report["result"], report["reason"]) != ("refused", "sandbox"):
            return f"not refused: {report['result']} {report['reason']} {detail} {said!r}"
        if interrupted:
            return f"refused, though it could have been tried again: {detail}"
        if "\n" in detail or len(detail) > 500 or not _WAYS_OUT.search(detail):
            return f"no sentence, or no way out: {detail}"
        return f"it said {said!r}" if said else ""

    def _left(self) -> str:
        """What is still open, or running, once it has had time to end."""
        limit = TimeLimit(PATIENCE_S)
        while (now := self._look()) != self._still:
            if limit.left_s <= 0:
                return f"left: {now} instead of {self._still}"
            time.sleep(0.001)
        return ""

    def _mounted(self) -> set[str]:
        """The mounts that its supervisor sees; in a namespace of others, those that name it."""
        lines = os.pread(self._mountinfo, 1 << 24, 0).decode().splitlines()
        if os.geteuid() == 0:
            return set(lines)
        return {line for line in lines if str(self.directory) in line or " tmpfs agentctl " in line}

    def _look(self) -> list[tuple[str, int, int]]:
        """The supervisor and its descendants: number of descriptors and of children of each."""
        found = []
        left = [("supervisor", self._server.pid)]
        while left:
            role, pid = left.pop()
            own = children(pid)
            found.append((role, _descriptors_of(pid), len(own)))
            left += [("child", child) for child in own]
        return found

    def _listing(self) -> set[str]:
        """What is where a mount might have needed something to be mounted on."""
        # What no run has there was made by somebody else.
        found = {path for path in self._names if os.path.lexists(path)}
        for above, _, files in os.walk(self._workspace):
            found |= {above, *(os.path.join(above, file) for file in files)}
        # Of runs, nothing but their records.
        for path in (self.directory / "home/runs").glob("*/*/"):
            found.add(f"a run's {path.name}")
        return found


def failures(calls: Sequence[str], most: int, error: str) -> Iterator[str]:
    """Each of *calls* with *error*; of a name at most *most*: first, last, some between."""
    counts = Counter(calls)
    for name, count in counts.items():
        chosen = list(range(1, count + 1))
        if count > most:
            chosen = sorted({1 + round(i * (count - 1) / (most - 1)) for i in range(most)})
        for nth in chosen:
            yield f"{name}:{nth}:{error}"


@contextlib.contextmanager
def _server(
    caller: Caller, home: Path, environment: Mapping[str, str], said: IO[bytes]
) -> Iterator[Server]:
    """A supervisor; root's, and the one that root starts for a user, has mounts of its own."""
    if os.geteuid() != 0:
        with Server(caller.python, home, environment, caller.identity, said) as server:
            yield server
        return
    until_it_runs, ready = os.pipe()
    start = (sys.executable, "-ISc", _IN_OWN_MOUNT_NAMESPACE, str(ready), str(caller.uid))
    try:
        starting = Server(
            caller.python, home, environment, {"pass_fds": (ready,)}, said, wrapper=start
        )
    finally:
        os.close(ready)
    with starting as server, open(until_it_runs, "rb") as pipe:
        pipe.read()
        yield server


@functools.cache
def _names_in_a_run(caller: Caller) -> frozenset[str]:
    """What a private root has in the places that the host has, too."""
    with contextlib.ExitStack() as stack:
        made = []
        for prefix in ("names-", "home-"):
            path = tempfile.mkdtemp(prefix=prefix, dir=caller.directory)
            stack.callback(shutil.rmtree, path)
            os.chown(path, caller.uid, caller.uid)
            made.append(path)
        workspace, home = made
        options = ("--sandbox", "strict", "--workspace", workspace)
        script = ("find", *_SHARED_PLACES, "-maxdepth", "1")
        done = subprocess.run(
            [command_of(caller.python), "run", *options, "--", *script],
            cwd="/",
            env={**caller.environment, "HOME": "/nowhere", "AGENTCTL_HOME": home},
            capture_output=True,
            text=True,
            check=False,
            **caller.identity,
        )
    names = frozenset(done.stdout.splitlines())
    assert names.issuperset(_SHARED_PLACES), done
    return names


def _descriptors_of(pid: int) -> int:
    try:
        return len(descriptors(pid))
    except OSError:  # another user's, or gone
        return -1
