"""Runs that take what they share with others, beside a bystander under the same supervisor.

Each program in ``tests/agents/neighbours`` is such an attack; its docstring says what it does.
Constants in it say how it is to be run, all of them optional: ``VARIANTS`` (arguments, each an
attack of its own), ``KIND`` (``"cpu"``: it takes processors;
``"user"``: it takes what the kernel counts for a user), ``SPEC`` (fields of `RunSpec`),
``FEED`` (``"stdin"`` or ``"input"``: what is written to it without end), ``NEEDS`` (``"root"``)
and ``PID_MAX`` (the supervisor is in a pid namespace with so few numbers).  A new attack is a new
file there.

What is measured is the bystander: `beside` starts a supervisor, a bystander and some of the
attackers, and returns what others see of it as a `Seen`.
"""

import ast
import contextlib
import dataclasses
import functools
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Self

import agentctl_child
import agentctl_protocol
import agentctl_supervisor
from agentctl_testkit import (
    AGENTS,
    MARKER_VARIABLE,
    command_of,
    kill_all,
    new_marker,
    wait_until_gone,
)
from agentctl_testkit.faults import children

NEIGHBOURS: Final = AGENTS / "neighbours"
SERVER: Final = Path(__file__).with_name("neighbours_server.py")

_UP_S: Final = 30.0
_PATIENCE_S: Final = 60.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_BYSTANDER: Final = "import time\nwhile True:\n print('tick', flush=True)\n time.sleep(0.02)\n"
_PYTHON: Final = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
_OURS: Final = (agentctl_child, agentctl_protocol, agentctl_supervisor)
_SMALL_PID_NAMESPACE: Final = (
    *("unshare", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child"),
    *("sh", "-c", 'echo "$0" > /proc/sys/kernel/pid_max && exec "$@"'),
)


@dataclasses.dataclass(frozen=True)
class Neighbour:
    """One attack: a program with one of its variants."""

    path: Path
    variant: str
    does: str
    kind: str = ""
    spec: dict[str, Any] = dataclasses.field(default_factory=dict)
    feed: str = ""
    needs: str = ""
    pid_max: int = 0

    def __str__(self) -> str:
        return self.path.stem + (f"-{self.variant}" if self.variant else "")

    @property
    def is_for_us(self) -> bool:
        """Whether whoever we are can be attacked with it."""
        return self.needs != "root" or os.geteuid() == 0


def neighbours() -> list[Neighbour]:
    """All attacks, as the directory lists them."""
    return [
        neighbour
        for path in sorted(NEIGHBOURS.glob("*.py"))
        if not path.name.startswith("_")
        for neighbour in _read(path)
    ]


def _read(path: Path) -> Iterator[Neighbour]:
    tree = ast.parse(path.read_text())
    wanted = ("VARIANTS", "KIND", "SPEC", "FEED", "NEEDS", "PID_MAX")
    said = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in wanted:
                # The program itself is not to be run here, and this is a file of the tests.
                code = compile(ast.Expression(value), path, "eval")
                said[name] = eval(code, {"range": range})  # noqa: S307
    for variant in said.get("VARIANTS", ("",)):
        yield Neighbour(
            path,
            variant,
            (ast.get_docstring(tree) or "").partition("\n\n")[0],
            said.get("KIND", ""),
            said.get("SPEC", {}),
            said.get("FEED", ""),
            said.get("NEEDS", ""),
            said.get("PID_MAX", 0),
        )


@dataclasses.dataclass
class Seen:
    """What others than the attackers saw.  Times are seconds; NaN: it never came.

    ``late_s``: of each turn of the loop.  ``own_*``: the same without attackers.
    ``said``: what the first attacker said.  ``trouble``: what should not have been.
    """

    neighbour: Neighbour
    attackers: int
    late_s: list[float] = dataclasses.field(default_factory=list)
    late_at_end_s: list[float] = dataclasses.field(default_factory=list)
    own_late_s: list[float] = dataclasses.field(default_factory=list)
    stop_s: float = float("nan")
    own_stop_s: float = float("nan")
    shell_s: float = float("nan")
    own_shell_s: float = float("nan")
    new_s: float = float("nan")
    next_s: float = float("nan")
    end_s: float = float("nan")
    rss_before: int = 0
    rss_peak: int = 0
    cpu: float = float("nan")
    said: str = ""
    trouble: list[str] = dataclasses.field(default_factory=list)

    @property
    def summary(self) -> str:
        """All of it but the single turns of the loop."""
        late_s = [round(percentile(self.late_s, part), 3) for part in (0.5, 0.99, 1)]
        fields = dataclasses.asdict(self)
        for name in ("neighbour", "late_s", "late_at_end_s", "own_late_s"):
            del fields[name]
        return f"{self.neighbour}: lateness {late_s}, {fields}"

    @property
    def growth(self) -> int:
        """By how many bytes the supervisor's memory grew at most."""
        return self.rss_peak - self.rss_before


def percentile(values: Sequence[float], part: float) -> float:
    """That of *values*; NaN of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else float("nan")


class GoneError(Exception):
    """The supervisor has ended."""


class SilentError(GoneError):
    """The supervisor does not answer, or not yet."""


class Host:
    """`agentctl_testkit.neighbours_server` as a process, and the command line beside it."""

    def __init__(self, directory: Path, level: str, pid_max: int) -> None:
        self.directory = directory
        self.level = level
        self.marker = new_marker()
        self._environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("AGENTCTL_")},
            "AGENTCTL_HOME": str(directory / "home"),
        }
        start = [sys.executable, "-P", str(SERVER)]
        if pid_max:
            start = [*_SMALL_PID_NAMESPACE, str(pid_max), *start]
        self._pid_max = pid_max
        self._errors = (directory / "stderr").open("w+b")
        self._process = subprocess.Popen(
            start,
            cwd="/",
            env={**self._environment, "PYTHONPATH": os.pathsep.join(sys.path[1:])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._peak = 0
        self._last = 0
        self._data = b""
        self._answers: dict[int, dict[str, Any]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()
        kill_all(self.marker)

    @functools.cached_property
    def pid(self) -> int:
        """The supervisor's process."""
        if not self._pid_max:
            return self._process.pid
        (child,) = children(self._process.pid)
        return child

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    @property
    def last_words(self) -> str:
        """The end of what it said on standard error."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return " / ".join(line.strip(" |") for line in lines[-3:])[-300:]

    def tell(self, do: str, **order: Any) -> int:
        """Give an order; the number of its answer."""
        assert self._process.stdin is not None
        self._last += 1
        try:
            line = json.dumps({"id": self._last, "do": do, **order}).encode() + b"\n"
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise GoneError(f"the supervisor has ended: {self.last_words}") from None
        return self._last

    def answer(self, number: int, within_s: float = _PATIENCE_S) -> dict[str, Any]:
        """The answer to an order.

        Raises:
            SilentError: none came in time.
            GoneError: none can come.
        """
        assert self._process.stdout is not None
        until = time.monotonic() + within_s
        while number not in self._answers:
            left_s = until - time.monotonic()
            if left_s <= 0 or not select.select([self._process.stdout], [], [], left_s)[0]:
                raise SilentError(f"no answer of the supervisor for {within_s:g} s")
            data = os.read(self._process.stdout.fileno(), 1 << 20)
            if not data:
                self._process.wait()
                raise GoneError(f"the supervisor has ended: {self.last_words}")
            *lines, self._data = (self._data + data).split(b"\n")
            for line in lines:
                told = json.loads(line)
                self._answers[told.pop("id")] = told
        return self._answers.pop(number)

    def ask(self, do: str, within_s: float = _PATIENCE_S, **order: Any) -> dict[str, Any]:
        """Give an order and wait for its answer."""
        return self.answer(self.tell(do, **order), within_s)

    def workspace(self, name: str) -> Path:
        """The directory in which the run *name* is."""
        path = self.directory / name
        path.mkdir(exist_ok=True)
        return path

    def spec(self, argv: Sequence[str], workspace: str, **fields: Any) -> dict[str, Any]:
        """A run at our level."""
        path = str(self.workspace(workspace))
        return {
            "argv": argv,
            "sandbox": self.level,
            "workspace": path,
            "cwd": path,
            "time_s": 300,
            "ro": [str(NEIGHBOURS)],
            **fields,
            "env": {
                "PATH": os.defpath,
                MARKER_VARIABLE: self.marker,
                **fields.get("env", {}),
            },
        }

    def command(self, *words: str, within_s: float = _PATIENCE_S) -> tuple[float, int, str]:
        """``agentctl`` from a fresh shell: how long it took, its status, what it said."""
        enter = ["nsenter", f"--target={self.pid}", "--pid", "--mount"] if self._pid_max else []
        argv = [command_of(sys.executable), *words]
        began = time.monotonic()
        try:
            done = subprocess.run(
                [*enter, *argv],
                cwd="/",
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=within_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return time.monotonic() - began, -1, f"not over after {within_s:g} s"
        return time.monotonic() - began, done.returncode, (done.stdout + done.stderr).strip()

    def peak(self) -> int:
        """The most memory that the supervisor has had, as far as it was there to be asked."""
        self._peak = max(self._peak, self.memory("VmHWM"))
        return self._peak

    def memory(self, what: str) -> int:
        """``VmRSS`` or ``VmHWM`` of the supervisor, in bytes; 0 if it is gone."""
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith(f"{what}:"):
                    return int(line.split()[1]) << 10
        return 0

    def cpu_s(self) -> float:
        """The processor time that the supervisor has used."""
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / _TICKS
        return float("nan")


def beside(
    neighbour: Neighbour,
    *,
    attackers: int,
    seconds: float,
    level: str = "strict",
    baselines: int = 3,
) -> Seen:
    """Let *attackers* of a kind work for so many seconds, and see what it does to others.

    ``baselines``: so many bystanders are stopped before, to know how long that takes by itself.
    """
    seen = Seen(neighbour, attackers)
    made = tempfile.mkdtemp(prefix="agentctl-test-", dir="/tmp")
    os.chmod(made, 0o755)
    try:
        with Host(Path(made), level, neighbour.pid_max) as host:
            try:
                _measure(host, seen, seconds, baselines)
            except GoneError as error:
                seen.trouble.append(str(error))
            if not host.alive:
                seen.trouble.append("the supervisor has ended")
            seen.rss_peak = host.peak()
    finally:
        # shutil.rmtree goes no deeper than Python's stack.
        subprocess.run(["rm", "-rf", made], check=False, capture_output=True)
    return seen


def _measure(host: Host, seen: Seen, seconds: float, baselines: int) -> None:
    _baseline(host, seen, baselines)
    _, in_shell = (_bystander(host, seen, name) for name in ("one", "two"))
    seen.rss_before = host.memory("VmRSS")
    names = [f"attacker{number}" for number in range(seen.attackers)]
    first_attacker = _attack(host, seen, names)
    host.ask("lateness")
    began, cpu_s = time.monotonic(), host.cpu_s()
    time.sleep(seconds)  # the attack is the experiment
    _new_run(host, seen, "new", "new_s")
    _shell(host, seen, in_shell)
    _stop(host, seen)
    seen.cpu = (host.cpu_s() - cpu_s) / (time.monotonic() - began)
    seen.late_s = host.ask("lateness")["late_s"]
    host.peak()
    _look_from_a_shell(host, seen, first_attacker)
    _new_run(host, seen, names[0], "next_s")
    began = time.monotonic()
    ended = host.ask("stop_all", names=names)["runs"]
    seen.end_s = time.monotonic() - began
    seen.late_at_end_s = host.ask("lateness")["late_s"]
    if any(run["survivors"] for run in ended):
        seen.trouble.append(f"survivors: {ended}")
    _new_run(host, seen, "afterwards", "")
    if left := wait_until_gone(host.marker, within_s=10):
        seen.trouble.append(f"left alive: {[str(process) for process in left[:3]]}")


def _baseline(host: Host, seen: Seen, count: int) -> None:
    stops, shells = [], []
    for number in range(count):
        by_us, in_shell = f"us{number}", f"shell{number}"
        _bystander(host, seen, by_us)
        began = time.monotonic()
        host.ask("stop", name=by_us)
        stops.append(time.monotonic() - began)
        shells.append(host.command("stop", _bystander(host, seen, in_shell))[0])
    if count:
        seen.own_stop_s, seen.own_shell_s = statistics.median(stops), statistics.median(shells)
        host.ask("lateness")
        time.sleep(0.5)  # what the loop is like with nothing to do
        seen.own_late_s = host.ask("lateness")["late_s"]


def _bystanding(host: Host) -> dict[str, Any]:
    return host.spec((_PYTHON, "-S", "-c", _BYSTANDER), "bystanders")


def _bystander(host: Host, seen: Seen, name: str) -> str:
    answer = host.ask("start", name=name, spec=_bystanding(host))
    if answer.get("state") != "running":
        seen.trouble.append(f"bystander: {answer}")
    host.ask("up", name=name)
    return str(answer.get("run", ""))


def _attack(host: Host, seen: Seen, names: Sequence[str]) -> str:
    """Start the attackers and wait until they are at it; the first one's run."""
    neighbour = seen.neighbour
    environment = {
        "AGENTCTL_TEST_NEIGHBOURS": str(len(names)),
        "AGENTCTL_TEST_INSTALLATION": ":".join(str(p) for m in _OURS for p in m.__path__),
        "HOME": "/nowhere",
    }
    argv = (_PYTHON, "-SsB", str(neighbour.path), neighbour.variant)
    runs: list[str] = []
    for name in names:
        spec = host.spec(argv, name, **neighbour.spec, env=environment)
        answer = host.ask("start", name=name, spec=spec, feed=neighbour.feed)
        if answer.get("state") not in {"running", "waiting"}:
            seen.trouble.append(f"attacker: {answer}")
        runs.append(answer.get("run", ""))
    for name in names:
        try:
            said = host.ask("up", name=name, within_s=_UP_S)
        except SilentError:
            said = {"said": f"not up after {_UP_S:g} s", "finished": False}
        if name == names[0]:
            seen.said = said["said"]
            if said["finished"]:
                outcome = host.ask("outcome", name=name)
                seen.trouble.append(f"attacker ended by itself: {said['said']} {outcome}")
    return runs[0]


def _new_run(host: Host, seen: Seen, workspace: str, field: str) -> None:
    """Start one that only says a word.  In an attacker's workspace it may be refused."""
    began = time.monotonic()
    spec = host.spec(("/bin/echo", "hi"), workspace)
    host.ask("start", name="new", spec=spec)
    outcome = host.ask("outcome", name="new")
    if field:
        setattr(seen, field, time.monotonic() - began)
    may_be_refused = workspace.startswith("attacker") and outcome["result"] == "refused"
    if outcome["result"] != "succeeded" and not may_be_refused:
        seen.trouble.append(f"new run ({workspace}): {outcome}")


def _shell(host: Host, seen: Seen, run: str) -> None:
    seen.shell_s, status, said = host.command("stop", run)
    if status != 0:
        seen.trouble.append(f"agentctl stop: {status} {said[-200:]}")


def _look_from_a_shell(host: Host, seen: Seen, run: str) -> None:
    """What a person does about an attacker: see it, look at it, stop it."""
    graces = ("--grace", "200ms", "--term-grace", "500ms")
    for words in (("ps",), ("show", run), ("stop", run, *graces)):
        _, status, said = host.command(*words)
        if status != 0:
            seen.trouble.append(f"agentctl {words[0]}: {status} {said[-200:]}")


def _stop(host: Host, seen: Seen) -> None:
    began = time.monotonic()
    outcome = host.ask("stop", name="one")
    seen.stop_s = time.monotonic() - began
    if outcome.get("result") != "stopped":
        seen.trouble.append(f"bystander: {outcome}")
