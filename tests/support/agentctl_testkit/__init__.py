"""What every test of a process tree needs: who is alive, who is up, who is gone.

* A *marker* is a string that stands in the environment of an agent, so that every
  process of its run carries it whatever it does to its parents, session and title.
  Survivors are looked for over all of ``/proc``, never in our own book-keeping.
* A *roll call* is a FIFO on which the members of a tree say that they are up, and
  which signals reach them.  Tests wait for words, never for time.
* `AgentctlHome` is a state directory of its own with the command line for it.

Nothing here imports agentctl: what is measured does not measure itself.
"""

import contextlib
import dataclasses
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from agentctl_testkit.clock import TimeLimit

REPOSITORY: Final = Path(__file__).resolve().parents[3]
AGENTS: Final = REPOSITORY / "tests" / "agents"

MARKER_VARIABLE: Final = "AGENTCTL_TEST_MARKER"
READY_VARIABLE: Final = "AGENTCTL_TEST_READY"
SECONDS_VARIABLE: Final = "AGENTCTL_TEST_SECONDS"

ORDINARY_UID: Final = 4242
"""A plain user; not "nobody", as whom everybody appears in a user namespace without a map."""

TOO_LONG_ARGUMENT: Final = "x" * (129 << 10)
"""One argument longer than Linux takes (MAX_ARG_STRLEN, 128 KiB): execve says E2BIG."""


# --- who is alive ---------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Found:
    """A live process that carries what was looked for."""

    pid: int
    start_time: int
    state: str
    command: str

    def __str__(self) -> str:
        return f"{self.pid} ({self.state}) {self.command}"


def new_marker() -> str:
    """A string that no other process on this machine carries."""
    return f"marker-{secrets.token_hex(12)}"


def alive(*needles: str) -> list[Found]:
    """Every live process with one of *needles* in its command line or environment.

    A zombie is dead, unless another thread of it still runs.  This process is never
    among them.  Two passes, newest processes first, and their union: one that forks
    and leaves while ``/proc`` is read is easily missed.  Only `RollCall.anyone_left`
    is exact about those.
    """
    encoded = [needle.encode() for needle in needles]
    found = {}
    for _ in range(2):
        pids = sorted((int(name) for name in os.listdir("/proc") if name.isdigit()), reverse=True)
        for pid in pids:
            process = _examine(pid, encoded) if pid != os.getpid() else None
            if process is not None:
                found[process.pid, process.start_time] = process
    return sorted(found.values(), key=lambda process: process.pid)


def situation(*needles: str) -> str:
    """What the processes with one of *needles* do, for the message of a test that waited in vain.

    A line for each: it, its parent, the CPU time that it has used and where in the kernel it is.
    """
    return "".join(
        f"\n  {process}, child of {parent}, {ticks} ticks of CPU, in {call}"
        for process in alive(*needles)
        for parent, ticks in [_parent_and_cpu(process.pid)]
        for call in [_read(process.pid, "wchan").decode() or "?"]
    )


def _parent_and_cpu(pid: int) -> tuple[int, int]:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return (int(fields[1]), int(fields[11]) + int(fields[12])) if fields else (0, 0)


def is_alive(pid: int) -> bool:
    """Whether a process *pid* exists and is more than a zombie."""
    return _state(pid) is not None


def wait_until_gone(*needles: str, within_s: float) -> list[Found]:
    """What `alive` still finds after at most *within_s* seconds; the sooner the better.

    Waits on pidfds, so that it returns with the death of the last process.  The time in which
    the machine was busy does not count, see `TimeLimit`.
    """
    limit = TimeLimit(within_s)
    while remaining := alive(*needles):
        if (left_s := limit.left_s) <= 0:
            break
        _wait_for_exit(remaining, left_s)
    return remaining


def kill_all(*needles: str) -> int:
    """SIGKILL to everything that `alive` finds, until nothing is left; how many that were.

    For cleaning up after a control.  It is no test of anything, and no match for a comet.
    """
    killed: set[tuple[int, int]] = set()
    for _ in range(50):
        found = alive(*needles)
        if not found:
            return len(killed)
        for process in found:
            with contextlib.suppress(OSError), _pidfd(process) as descriptor:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                killed.add((process.pid, process.start_time))
        _wait_for_exit(found, 1.0)
    raise AssertionError(f"cannot be killed: {[str(process) for process in found]}")


def _examine(pid: int, needles: list[bytes]) -> Found | None:
    command = _read(pid, "cmdline")
    if not any(needle in command or needle in _read(pid, "environ") for needle in needles):
        return None
    state = _state(pid)
    if state is None:
        return None
    shown = command.replace(b"\0", b" ").decode(errors="backslashreplace").strip()
    return Found(pid, state[1], state[0], shown[:200])


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # gone, or somebody else's
        return b""


def _state(pid: int) -> tuple[str, int] | None:
    """State letter and start time; None if no thread of it is alive."""
    try:
        stats = [Path(f"/proc/{pid}/stat").read_bytes()]
        fields = stats[0].rpartition(b")")[2].split()
        if fields[0] in b"ZX":
            # The leader may have ended while other threads go on.
            tasks = os.listdir(f"/proc/{pid}/task")
            stats = [Path(f"/proc/{pid}/task/{task}/stat").read_bytes() for task in tasks]
    except OSError:
        return None
    letters = {stat.rpartition(b")")[2].split()[0].decode() for stat in stats} - {"Z", "X"}
    return (min(letters), int(fields[19])) if letters else None


@contextlib.contextmanager
def _pidfd(process: Found) -> Iterator[int]:
    descriptor = os.pidfd_open(process.pid)
    try:
        state = _state(process.pid)
        if state is None or state[1] != process.start_time:
            raise ProcessLookupError(process.pid)
        yield descriptor
    finally:
        os.close(descriptor)


def _wait_for_exit(processes: Sequence[Found], within_s: float) -> None:
    """Return when all of *processes* have exited, or after *within_s* seconds."""
    deadline = time.monotonic() + within_s
    for process in processes:
        with contextlib.suppress(OSError), _pidfd(process) as descriptor:
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            poller.poll(max(0.0, deadline - time.monotonic()) * 1000)


# --- who is up ------------------------------------------------------------


class RollCall:
    """A FIFO on which the members of a tree report.  Its path is in `READY_VARIABLE`.

    Each line is one report, written in one piece: ``up ROLE PID`` when a member is
    in place, ``got ROLE SIGNAME`` when a signal reached it.  The members inherit the
    root's end and keep it open, so that the kernel itself knows when the last is gone.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / f"roll-call-{secrets.token_hex(4)}"
        os.mkfifo(self.path)
        self.path.chmod(0o666)  # an agent may run under a uid of its own
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._poller = select.poll()
        self._poller.register(self._descriptor, select.POLLIN)
        self._partial = b""
        self.lines: list[str] = []

    def __repr__(self) -> str:
        return f"<RollCall {self.lines}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close and remove the FIFO."""
        os.close(self._descriptor)
        self.path.unlink(missing_ok=True)

    def fileno(self) -> int:
        """For an event loop that wants to wait by itself; then call `hear`."""
        return self._descriptor

    def hear(self) -> None:
        """Take in what has been said so far, without waiting."""
        while True:
            try:
                data = os.read(self._descriptor, 65536)
            except BlockingIOError:
                return
            if not data:
                return
            *complete, self._partial = (self._partial + data).split(b"\n")
            self.lines += [line.decode() for line in complete]

    def up(self) -> list[str]:
        """The roles that have reported to be up, in that order."""
        return [line.split()[1] for line in self.lines if line.startswith("up ")]

    def signals(self) -> dict[str, list[str]]:
        """Which signals reached which role, in order."""
        heard: dict[str, list[str]] = {}
        for line in self.lines:
            if line.startswith("got "):
                _, role, name = line.split()
                heard.setdefault(role, []).append(name)
        return heard

    def wait_for(self, count: int, within_s: float = 20.0) -> list[str]:
        """The roles that are up, as soon as *count* members are.

        Raises:
            AssertionError: fewer are, after *within_s* seconds.
        """
        self.wait_until(lambda: len(self.up()) >= count, f"{count} members", within_s)
        return self.up()

    def wait_until(self, condition: Callable[[], bool], what: str, within_s: float = 20.0) -> None:
        """Return as soon as *condition* holds; it is asked again after every report.

        Raises:
            AssertionError: it does not hold after *within_s* seconds (see `TimeLimit`), or it never
                will because everybody is gone.
        """
        limit = TimeLimit(within_s)
        while True:
            gone = self._everyone_gone()
            self.hear()
            if condition():
                return
            left_s = limit.left_s
            if gone or left_s <= 0:
                why = "all are gone" if gone else f"{within_s:g} s are over"
                raise AssertionError(f"no {what}: {why}; heard {self.lines}")
            self._poller.poll(left_s * 1000)

    @property
    def anyone_left(self) -> bool:
        """Whether a process that reported, or a fork of one, is alive at this moment."""
        self.hear()
        return bool(self.lines) and not self._everyone_gone()

    def wait_until_gone(self, within_s: float) -> bool:
        """Whether all who reported, and their forks, are gone within *within_s* seconds.

        The time in which the machine was busy does not count, see `TimeLimit`.
        """
        limit = TimeLimit(within_s)
        while self.anyone_left:
            if (left_s := limit.left_s) <= 0:
                return False
            self._poller.poll(left_s * 1000)
        return True

    def _everyone_gone(self) -> bool:
        # Linux sets POLLHUP only once somebody has had the other end open.
        return any(events & select.POLLHUP for _, events in self._poller.poll(0))


@dataclasses.dataclass(frozen=True)
class Hostile:
    """An agent that misbehaves: a file in ``tests/agents`` and how many processes it becomes.

    ``members`` are up at the same moment, the root among them.
    """

    name: str
    members: int
    arguments: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        """The program."""
        return AGENTS / f"{self.name}.py"

    def argv(self, *more: str) -> tuple[str, ...]:
        """The command line.  ``--leave`` makes the root exit with 7 once all members are up."""
        return (sys.executable, "-S", str(self.path), *self.arguments, *more)

    def __str__(self) -> str:
        return "-".join((self.name, *self.arguments))


HOSTILE_TREES: Final = (
    Hostile("runaway", 5),
    Hostile("six_roles", 6),
    Hostile("comet", 2),
    Hostile("stopped_member", 3),
    Hostile("own_subreaper", 4),
    Hostile("pipe_holder", 2),
    Hostile("channel_holder", 2),
    Hostile("flooder", 2),
    Hostile("gil_hog", 1),
    Hostile("gil_hog", 1, ("native",)),
    Hostile("ptracer", 3),
)
"""Trees for the matrix: each survives what most supervisors do to it."""

BAD_SPEAKERS: Final = (
    Hostile("exit_mid_frame", 1),
    Hostile("half_frame", 1),
    *(
        Hostile("lying_frames", 1, (lie,))
        for lie in (
            "huge",
            "zero",
            "garbage",
            "version",
            "tag",
            "nested",
            "long_array",
            "long_map",
            "long_string",
            "bad_utf8",
            "mistyped",
            "no_hello",
            "supervisors_word",
            "gap",
            "hello_twice",
        )
    ),
)
"""Programs that break the channel's rules, each in one way."""


def agent_environment(marker: str, roll_call: RollCall, seconds: float = 120) -> dict[str, str]:
    """The whole environment of an agent under test.  It ends by itself after *seconds*."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        MARKER_VARIABLE: marker,
        READY_VARIABLE: str(roll_call.path),
        SECONDS_VARIABLE: str(seconds),
    }


# --- the command line -----------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Finished:
    """A command that has ended."""

    argv: tuple[str, ...]
    code: int
    stdout: bytes
    stderr: bytes

    @property
    def out(self) -> str:
        """Standard output as text."""
        return self.stdout.decode()

    @property
    def err(self) -> str:
        """Standard error as text."""
        return self.stderr.decode()

    def json(self) -> Any:
        """Standard output as JSON."""
        return json.loads(self.stdout)


def _is_kept(variable: str) -> bool:
    # The level is that of the whole session; see tests/conftest.py.
    return variable == "AGENTCTL_SANDBOX" or not variable.startswith("AGENTCTL_")


def command_of(python: str) -> str:
    """The ``agentctl`` that is installed with the interpreter *python*."""
    return os.path.join(os.path.dirname(python), "agentctl")


class AgentctlHome:
    """A state directory of its own, and the command line for it."""

    def __init__(self, root: Path, environment: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.environment = {
            **{key: value for key, value in os.environ.items() if _is_kept(key)},
            "AGENTCTL_HOME": str(root),
            **(environment or {}),
        }

    def __repr__(self) -> str:
        return f"<AgentctlHome {self.root}>"

    def argv(self, *arguments: str) -> tuple[str, ...]:
        """The command line that runs ``agentctl`` with *arguments*."""
        return (command_of(sys.executable), *arguments)

    def run(
        self,
        *arguments: str,
        input: bytes | None = None,  # noqa: A002 - subprocess.run's own name
        environment: Mapping[str, str] | None = None,
        within_s: float = 120.0,
        as_ordinary_user: bool = False,
        cwd: Path | None = None,
    ) -> Finished:
        """Run ``agentctl`` to its end.

        Raises:
            subprocess.TimeoutExpired: it takes more than *within_s* seconds.
        """
        done = subprocess.run(
            self.argv(*arguments),
            input=input,
            stdin=subprocess.DEVNULL if input is None else None,
            capture_output=True,
            env={**self.environment, **(environment or {})},
            timeout=within_s,
            cwd=cwd,
            check=False,
            **(as_nobody() if as_ordinary_user else {}),
        )
        return Finished(tuple(done.args), done.returncode, done.stdout, done.stderr)

    def start(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        as_ordinary_user: bool = False,
        **popen: Any,
    ) -> "subprocess.Popen[bytes]":
        """Start ``agentctl`` and return at once.  Output goes to pipes unless *popen* says else."""
        options: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            **(as_nobody() if as_ordinary_user else {}),
            **popen,
        }
        return subprocess.Popen(
            self.argv(*arguments), env={**self.environment, **(environment or {})}, **options
        )


def as_nobody() -> dict[str, Any]:
    """Arguments that make subprocess start something as an ordinary user; needs root."""
    return {"user": ORDINARY_UID, "group": ORDINARY_UID, "extra_groups": []}


@contextlib.contextmanager
def ordinary_directory() -> Iterator[Path]:
    """A directory that belongs to the ordinary user of `as_nobody` and that it can reach.

    pytest's own temporary directories lie below one that only root may enter.
    """
    path = Path("/tmp") / f"agentctl-test-{secrets.token_hex(6)}"
    path.mkdir(mode=0o700)
    os.chown(path, ORDINARY_UID, ORDINARY_UID)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def let_everybody_in(path: Path) -> None:
    """Open *path* and pytest's directories above it, which only root may enter."""
    for directory in (path, *path.parents):
        if not any(part.startswith("pytest-of-") for part in directory.parts):
            return  # the machine's own
        directory.chmod(0o755)


def descriptors(pid: int | str = "self") -> dict[int, str]:
    """The open file descriptors of a process and what each of them is."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # the one that lists them
            found[int(name)] = os.readlink(f"/proc/{pid}/fd/{name}")
    return found
