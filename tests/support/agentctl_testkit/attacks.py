"""The attack range: each program of ``tests/agents/attacks`` outside a sandbox, then inside.

The contract of an attack
    ``tests/agents/attacks/a01_what_it_tries.py``: group (A to F of the catalogue), number,
    name.  The first line of its docstring becomes its row in ``docs/sandbox.md``: what it
    tries, a colon, what must happen.  It imports nothing but the standard library and
    `attempt`, whose docstring says how variants are written, and gets `Plant.facts`.

    A test module lists the attacks of its groups as `Probe`, and for each `params` and
    `AttackRange.check` do the rest:

    1. *Outside*, as a plain process of the same caller, every variant has to work, or to say
       that it is `Impossible` there: nothing is taken for blocked that was never seen open.
    2. *Inside*, at each level of the probe and for each caller (root, and an ordinary user),
       no variant may work, but for those in `Probe.harmless`, which must, or else are stale.
       What standard cannot stop is there as one of `limits_of_standard`; strict has no such thing.
    3. On the host's side, `Plant.harm` must find all as it was planted, whatever the attack
       says of itself; and nothing that was secret may stand in its output.

A run of the tests with ``AGENTCTL_GOLDEN=write`` writes the rows; without, it compares.

Standard is tried in the subreaper fallback, where it has nothing but Landlock and seccomp:
with a pid namespace it is only stronger.
"""

import ast
import contextlib
import dataclasses
import functools
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, Literal, Self, TypeAlias

import pytest

import agentctl_protocol
from agentctl_testkit import AGENTS, ORDINARY_UID, alive, as_nobody
from agentctl_testkit.attack_plant import PLANTED_VARIABLE, Plant
from agentctl_testkit.attack_table import NOT_SHOWN, Row, compare_or_write
from agentctl_testkit.capabilities import Capability
from agentctl_testkit.ordinary import Installation, installed, interpreter

ATTACKS: Final = AGENTS / "attacks"
SERVER: Final = Path(__file__).with_name("attack_server.py")

STRICT: Final = "strict"
STANDARD: Final = "standard"
ROOT: Final = "root"
USER: Final = "user"

Level: TypeAlias = Literal["strict", "standard"]
Verdict: TypeAlias = Literal["open", "blocked", "impossible", "broken"]

_TIME_S: Final = 45.0
"""For a whole attack, with many others beside it; nothing waits for it to pass."""
_CONTAINMENT: Final = {STRICT: "pid-namespace", STANDARD: "subreaper", "basic": "pid-namespace"}


@dataclasses.dataclass(frozen=True)
class Harmless:
    """A variant that does work inside, and why nobody is worse off for it.

    ``harms``: what the host sees of it is no fault either.
    """

    variant: str
    why: str
    levels: tuple[str, ...] = (STRICT, STANDARD)
    callers: tuple[str, ...] = (ROOT, USER)
    harms: bool = False


def limits_of_standard(
    why: str, *variants: str, callers: tuple[str, ...] = (ROOT, USER), harms: bool = False
) -> tuple[Harmless, ...]:
    """Variants that standard cannot stop, harmless or not: a reason to prefer strict."""
    why = f"a limit of standard: {why}"
    return tuple(Harmless(name, why, (STANDARD,), callers, harms) for name in variants)


@dataclasses.dataclass(frozen=True)
class Probe:
    """An attack, and how it is judged.

    ``name``: its file, without ``.py``.  ``levels``: those that promise something about it.
    ``needs``: what a machine must have to show it.  ``spec``: more fields of the `RunSpec`.
    ``plant``: plants more before it starts (not at level "outside" alone: see `Plant.level`),
    and gives more facts; what is to be undone goes on `Plant.undo`.  ``check``: what else is
    wrong on the host afterwards, one text each.  ``seen``: its control leaves traces that
    `Plant.harm` and ``check`` must see, or else they are blind.
    """

    name: str
    levels: tuple[str, ...] = (STRICT, STANDARD)
    needs: tuple[Capability, ...] = ()
    harmless: tuple[Harmless, ...] = ()
    spec: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    plant: Callable[[Plant], Mapping[str, Any]] | None = None
    check: Callable[[Plant], Sequence[str]] | None = None
    seen: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def path(self) -> Path:
        """The program."""
        return ATTACKS / f"{self.name}.py"

    @property
    def promise(self) -> str:
        """What it tries and what must happen, on one line."""
        text = ast.get_docstring(ast.parse(self.path.read_text())) or ""
        return " ".join(text.partition("\n\n")[0].split())


def params(probes: Sequence[Probe]) -> list[Any]:
    """*probes* for ``pytest.mark.parametrize``."""
    return [pytest.param(p, id=p.name, marks=pytest.mark.needs(*p.needs)) for p in probes]


def attack_files(*groups: str) -> set[str]:
    """Names of all attacks of these groups, ``"a"`` to ``"f"``."""
    return {path.stem for group in groups for path in ATTACKS.glob(f"{group}[0-9]*.py")}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What an attack said of itself, and what was found on the host afterwards."""

    attack: Verdict
    detail: str
    evidence: Mapping[str, str]
    variants: Mapping[str, Verdict]
    harm: tuple[str, ...] = ()


# --- who runs them ------------------------------------------------------------


class Caller:
    """Somebody who runs agentctl: root, or an ordinary user."""

    def __init__(
        self,
        name: str,
        directory: Path,
        token: str,
        installation: Installation | None = None,
    ) -> None:
        self.name = name
        self.directory = directory
        self.token = token
        self.identity: dict[str, Any] = as_nobody() if installation else {}
        self.uid = ORDINARY_UID if installation else os.geteuid()
        self.attacks = installation.agents / "attacks" if installation else ATTACKS
        #: For attacks: one that everybody can run, if there is one.
        self.interpreter = (interpreter() if os.geteuid() == 0 else None) or sys.executable
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("AGENTCTL_")},
            "HOME": str(directory),
            PLANTED_VARIABLE: token,
        }
        (package,) = agentctl_protocol.__path__
        self.agentctl = Path(package, "spec.py")
        if installation:
            (self.agentctl,) = installation.directory.rglob("agentctl_protocol/spec.py")
        self.python = installation.python if installation else sys.executable
        self._servers: dict[str, Server] = {}
        self._stack = contextlib.ExitStack()

    def argv(self, probe: Probe, facts: Mapping[str, Any]) -> tuple[str, ...]:
        """The command line of an attack."""
        program = self.attacks / probe.path.name
        return (self.interpreter, "-ESs", str(program), json.dumps(facts))

    def outside(self, probe: Probe, plant: Plant) -> "subprocess.Popen[bytes]":
        """Start it as a plain process."""
        return subprocess.Popen(
            self.argv(probe, plant.facts),
            cwd=plant.workspace,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **self.identity,
        )

    def server(self, level: str) -> "Server":
        """The supervisor of all its runs at *level*."""
        if level not in self._servers:
            home = self.directory / f"home-{level}"
            self._servers[level] = self._stack.enter_context(
                Server(
                    self.python,
                    home,
                    {**self.environment, "AGENTCTL_CONTAINMENT": _CONTAINMENT[level]},
                    self.identity,
                )
            )
        return self._servers[level]

    def inside(self, probe: Probe, plant: Plant) -> int:
        """Start it as a run; the number of the job."""
        return self.server(plant.level).start(
            {
                "argv": self.argv(probe, plant.facts),
                "sandbox": plant.level,
                "workspace": str(plant.workspace),
                "cwd": str(plant.workspace),
                "ro": [str(self.attacks)],
                "time_s": _TIME_S,
                "grace_s": 0.1,
                "term_grace_s": 0.1,
                **probe.spec,
            }
        )

    def beside(self, plant: Plant) -> Mapping[str, Any]:
        """See `Plant.beside`."""
        workspace = plant.directory / "other-workspace"
        workspace.mkdir()
        (workspace / "note").write_text(plant.token)
        for path in (workspace, workspace / "note"):
            plant.own(path)
        level = "basic" if plant.level == "outside" else plant.level
        server = self.server(level)
        mark = f"300.{secrets.randbelow(10**12):012}"
        spec = {"argv": ["/bin/sleep", mark], "sandbox": level, "cwd": str(workspace)}
        if level != "basic":
            spec["workspace"] = str(workspace)
        number = server.start({**spec, "time_s": 300, "grace_s": 0, "term_grace_s": 0})
        directory = server.started(number)
        until = time.monotonic() + 20
        while not (found := [p for p in alive(mark) if p.command == f"/bin/sleep {mark}"]):
            assert time.monotonic() < until, server.answer(number)
            time.sleep(0.005)
        (sleeper,) = found

        def end() -> None:
            os.kill(sleeper.pid, signal.SIGKILL)
            server.answer(number)

        plant.undo.callback(end)
        (control_socket,) = (server.home / "run").glob("*.sock")
        return {
            "other_pid": sleeper.pid,
            "other_workspace": str(workspace),
            "run": directory,
            "home": str(server.home),
            "control_socket": str(control_socket),
        }

    def close(self) -> None:
        """End its supervisors."""
        self._stack.close()


class Server:
    """`agentctl_testkit.attack_server` as a process of a caller's.

    ``stderr``: where what it says goes.  ``wrapper``: the command that starts it.
    """

    def __init__(
        self,
        python: str,
        home: Path,
        environment: Mapping[str, str],
        identity: dict[str, Any],
        stderr: IO[bytes] | None = None,
        wrapper: Sequence[str] = (),
    ) -> None:
        self.home = home
        self._answers: dict[int, dict[str, Any]] = {}
        self._directories: dict[int, str] = {}
        self._last = 0
        self._process = subprocess.Popen(
            [*wrapper, python, "-c", SERVER.read_text()],
            cwd="/",
            env={**environment, "AGENTCTL_HOME": str(home)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            **identity,
        )

    @property
    def pid(self) -> int:
        """The supervisor's process."""
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.communicate(timeout=60)

    def start(self, spec: Mapping[str, Any]) -> int:
        assert self._process.stdin is not None
        self._last += 1
        line = json.dumps({"id": self._last, "spec": spec}).encode() + b"\n"
        self._process.stdin.write(line)
        self._process.stdin.flush()
        return self._last

    def started(self, number: int) -> str:
        """The directory of the run *number*.

        Raises:
            AssertionError: it could not be started.
        """
        while number not in self._directories:
            self._read()
            assert number not in self._answers, self._answers[number]
        return self._directories[number]

    def answer(self, number: int) -> dict[str, Any]:
        """What became of the run *number*, once it has finished."""
        while number not in self._answers:
            self._read()
        return self._answers.pop(number)

    def _read(self) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the supervisor of {self.home} ended: {self._process.wait(10)}"
        answer = json.loads(line)
        if "directory" in answer:
            self._directories[answer["id"]] = answer["directory"]
        else:
            self._answers[answer["id"]] = answer


# --- the range ----------------------------------------------------------------


class AttackRange:
    """All callers of this machine, each with a supervisor per level, for many attacks."""

    def __init__(self, callers: Sequence[Caller]) -> None:
        self.callers = {caller.name: caller for caller in callers}

    @classmethod
    @contextlib.contextmanager
    def open(cls, directory: Path) -> Iterator[Self]:
        """A range; root's part of it lies in *directory*."""
        token = f"planted-{secrets.token_hex(12)}"
        with contextlib.ExitStack() as stack:
            if os.geteuid() == 0:
                callers = [Caller(ROOT, directory, token)]
                if Capability.ORDINARY_PYTHON.here:
                    installation = stack.enter_context(installed())
                    theirs = installation.directory / "attacked"
                    theirs.mkdir()
                    os.chown(theirs, ORDINARY_UID, ORDINARY_UID)
                    callers.append(Caller(USER, theirs, token, installation))
            else:
                callers = [Caller(USER, directory, token)]
            for caller in callers:
                stack.callback(caller.close)
            yield cls(callers)

    def check(self, probe: Probe) -> None:
        """Outside, then inside; and its row of the table is what was seen.

        Raises:
            AssertionError: its text says all that is wrong.
        """
        seen = self.run(probe)
        faults = judge(probe, seen)
        shown = {v for c in self.callers for v in seen[c, "outside"].variants.values()}
        if shown == {"impossible"}:
            faults.append("no variant can be shown here, and no capability says so")
        assert not faults, "\n".join([probe.name, *faults])
        compare_or_write(row(probe, seen))

    def run(self, probe: Probe) -> dict[tuple[str, str], Outcome]:
        """Outcomes by caller and level, ``outside`` among the levels.  All at the same time."""
        with contextlib.ExitStack() as stack:
            waiting: list[tuple[tuple[str, str], Plant, Callable[[], Outcome]]] = []
            for caller in self.callers.values():
                for level in ("outside", *probe.levels):
                    plant = self._plant(caller, level)
                    stack.callback(plant.close)
                    if probe.plant is not None:
                        plant.plant(probe.plant(plant))
                    outcome = self._start(probe, caller, plant, stack)
                    waiting.append(((caller.name, level), plant, outcome))
            seen = {}
            for where, plant, outcome in waiting:
                said = outcome()
                extra = tuple(probe.check(plant)) if probe.check else ()
                seen[where] = dataclasses.replace(said, harm=said.harm + plant.harm() + extra)
            return seen

    def _plant(self, caller: Caller, level: str) -> Plant:
        directory = caller.directory / secrets.token_hex(6)
        return Plant(directory, caller, level, caller.token)

    def _start(
        self, probe: Probe, caller: Caller, plant: Plant, stack: contextlib.ExitStack
    ) -> Callable[[], Outcome]:
        if plant.level == "outside":
            process = stack.enter_context(caller.outside(probe, plant))
            stack.callback(process.kill)
            return functools.partial(_plain, process)
        number = caller.inside(probe, plant)
        return functools.partial(_confined, caller.server(plant.level), number, plant.token)


def _plain(process: "subprocess.Popen[bytes]") -> Outcome:
    out, err = process.communicate(timeout=_TIME_S)
    return _said(out.decode(errors="backslashreplace"), err.decode(errors="backslashreplace"))


def _confined(server: Server, number: int, token: str) -> Outcome:
    answer = server.answer(number)
    if "error" in answer:
        return Outcome("broken", f"not started: {answer['error']}", {}, {})
    report = answer["report"]
    outcome = _said(
        answer["stdout"],
        f"{answer['stderr']} {report.get('result')} {report.get('reason')} {report.get('detail')}",
    )
    leaked = (f"the secret is in its output: {outcome.evidence}",)
    return dataclasses.replace(
        outcome, harm=leaked if token in answer["stdout"] + answer["stderr"] else ()
    )


def _said(out: str, err: str) -> Outcome:
    try:
        said = json.loads(out.splitlines()[-1])
        return Outcome(said["attack"], said["detail"], said["evidence"], said["variants"])
    except (IndexError, ValueError, KeyError):
        return Outcome("broken", f"said nothing: {out[-300:]!r} {err[-700:]!r}", {}, {})


# --- judgement ----------------------------------------------------------------


def judge(probe: Probe, seen: Mapping[tuple[str, str], Outcome]) -> list[str]:
    """What is wrong with what was seen."""
    faults = []
    for (caller, level), outcome in seen.items():
        here = f"{level} {caller}"
        if outcome.attack == "broken":
            faults.append(f"{here}: the attack itself is broken: {outcome.detail}")
        elif level == "outside":
            failed = [name for name, said in outcome.variants.items() if said == "blocked"]
            if failed:
                faults.append(f"{here}: does not even work outside: {failed}: {outcome.detail}")
            if probe.seen and "open" in outcome.variants.values() and not outcome.harm:
                faults.append(f"{here}: it worked, and nothing is seen of it on the host")
        else:
            faults += _faults_inside(probe, here, outcome, seen[caller, "outside"])
    return faults


def _faults_inside(probe: Probe, here: str, inside: Outcome, outside: Outcome) -> Iterator[str]:
    harmless = {known.variant for known in _harmless(probe, here)}
    harm_is_known = any(known.harms for known in _harmless(probe, here))
    for variant, verdict in inside.variants.items():
        if verdict == "open" and variant not in harmless:
            told = inside.evidence.get(variant, "")
            yield f"{here}: OPEN {variant} {told}"
        elif verdict == "impossible" and outside.variants.get(variant) == "open":
            yield f"{here}: {variant} worked outside and was not tried inside: {inside.detail}"
    for variant in harmless:
        if inside.variants.get(variant) != "open":
            yield f"{here}: {variant} is said to be harmless, and is not open: {inside.detail}"
    for harm in () if harm_is_known else inside.harm:
        yield f"{here}: HARM {harm}"


def _harmless(probe: Probe, here: str) -> list[Harmless]:
    level, caller = here.split()
    return [h for h in probe.harmless if level in h.levels and caller in h.callers]


def row(probe: Probe, seen: Mapping[tuple[str, str], Outcome]) -> Row:
    """What ``docs/sandbox.md`` says of it."""
    cells = {}
    for caller in (ROOT, USER):
        for level in (STRICT, STANDARD):
            if level not in probe.levels:
                cells[level, caller] = "n/a"
            elif (caller, level) not in seen:
                continue
            elif set(seen[caller, "outside"].variants.values()) <= {"impossible"}:
                cells[level, caller] = NOT_SHOWN
            else:
                opened = _harmless(probe, f"{level} {caller}")
                of = len(seen[caller, level].variants)
                cells[level, caller] = f"open: {len(opened)} of {of}" if opened else "blocked"
    return Row(probe.name, probe.promise, cells, _why(probe))


def _why(probe: Probe) -> str:
    """The reasons, each once, with the variants that it is for."""
    variants: dict[str, list[str]] = {}
    for known in probe.harmless:
        variants.setdefault(known.why, []).append(known.variant)
    return "; ".join(f"{', '.join(names)}: {why}" for why, names in variants.items())
