"""Ordinary programs at strict, as root and as an ordinary user: what they need is there."""

import contextlib
import dataclasses
import os
import secrets
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from agentctl_testkit import AGENTS
from agentctl_testkit.attacks import STRICT, AttackRange, Caller

PROGRAMS: Final = AGENTS / "compat"
WORKS: Final = "all of it works"
"""The last line of every program that got to its end."""

_TIME_S: Final = 100.0
"""For a whole program, with others beside it; nothing waits for it to pass."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A caller, and a directory of its own for one use; ``workspace`` lies in it.

    ``undo``: what is to be done afterwards.
    """

    caller: Caller
    directory: Path
    undo: contextlib.ExitStack

    @property
    def workspace(self) -> Path:
        """What the run may write to."""
        return self.directory / "workspace"

    def program(self, name: str) -> str:
        """The caller's copy of a program of ``tests/agents/compat``."""
        return str(self.caller.attacks.parent / "compat" / name)

    def outside(self, *argv: str | Path, **options: Any) -> str:
        """What a command says that the caller runs outside of any sandbox, in the workspace.

        Raises:
            AssertionError: it fails.
        """
        done = subprocess.run(
            argv,
            cwd=options.pop("cwd", self.workspace),
            env={**self.caller.environment, **options.pop("env", {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            **options,
            **self.caller.identity,
        )
        assert done.returncode == 0, f"{argv}: {done.stdout}"
        return str(done.stdout)

    def own(self, path: Path) -> None:
        """Give *path*, and all in it, to the caller."""
        if self.caller.uid == os.geteuid():
            return
        if path.is_file():
            os.chown(path, self.caller.uid, self.caller.uid)
        for above, directories, files in os.walk(path):
            for name in (".", *directories, *files):
                uid = self.caller.uid
                os.chown(f"{above}/{name}", uid, uid, follow_symlinks=False)


@dataclasses.dataclass(frozen=True)
class Start:
    """One run: its command line, and more fields of its `RunSpec`."""

    argv: Sequence[str | Path]
    spec: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def check(range_: AttackRange, use: Callable[[Place], Start | Sequence[Start]]) -> None:
    """Start what *use* says for each caller, all at once: each ends with `WORKS`.

    Raises:
        AssertionError: its text says what did not work.
    """
    with contextlib.ExitStack() as undo:
        started: list[tuple[Place, Start, int]] = []
        for caller in range_.callers.values():
            place = _place(caller, undo)
            starts = use(place)
            started += [
                (place, start, _start(place, start))
                for start in ([starts] if isinstance(starts, Start) else starts)
            ]
        faults = [_fault(place, start, number) for place, start, number in started]
    assert not any(faults), "\n\n".join(filter(None, faults))


def _place(caller: Caller, undo: contextlib.ExitStack) -> Place:
    place = Place(caller, caller.directory / f"use-{secrets.token_hex(6)}", undo)
    for path in (place.directory, place.workspace):
        path.mkdir(mode=0o755)
        if caller.uid != os.geteuid():
            os.chown(path, caller.uid, caller.uid)
    undo.callback(shutil.rmtree, place.directory)
    return place


def _start(place: Place, start: Start) -> int:
    return place.caller.server(STRICT).start(
        {
            "argv": [str(word) for word in start.argv],
            "sandbox": STRICT,
            "workspace": str(place.workspace),
            "cwd": str(place.workspace),
            "time_s": _TIME_S,
            "grace_s": 0.1,
            "term_grace_s": 0.1,
            **start.spec,
        }
    )


def _fault(place: Place, start: Start, number: int) -> str:
    answer = place.caller.server(STRICT).answer(number)
    if answer.get("stdout", "").rstrip().endswith(WORKS):
        return ""
    report = answer.get("report", {})
    said = {key: report.get(key) for key in ("result", "reason", "detail")}
    told = answer.get("error") or f"{answer['stdout'][-1500:]}{answer['stderr'][-1500:]} {said}"
    return f"{place.caller.name}: {' '.join(map(str, start.argv))[:200]}\n{told}"
