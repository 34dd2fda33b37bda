"""Runs with a view of their own, straight from a spawner: for root, and for an ordinary user."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pytest

from agentctl_child.sandbox.bpf import Condition, Rule, assemble
from agentctl_protocol.spawning import Bind, Link, Part, Scratch
from agentctl_protocol.vocabulary import Containment, Network, Sandbox
from agentctl_testkit import ORDINARY_UID, as_nobody, ordinary_directory
from agentctl_testkit.capabilities import Capability, needs
from agentctl_testkit.ordinary import Installation, installed
from agentctl_testkit.spawner import RUN_UID, LaunchedRun, SpawnerStandIn

MEBIBYTE: Final = 1 << 20
CALLERS: Final = [
    pytest.param("root", marks=needs(Capability.ROOT, Capability.PID_NAMESPACE)),
    pytest.param("user", marks=needs(Capability.ORDINARY_PYTHON, Capability.USER_NAMESPACE)),
    pytest.param("ourselves", marks=needs(Capability.ORDINARY_USER, Capability.PID_NAMESPACE)),
]


def system() -> Iterator[Part]:
    """Programs, libraries and configuration, read-only; an own /tmp."""
    for name in ("/usr", "/etc", "/opt"):
        yield Bind(path=name.encode(), optional=True)
    for name in ("bin", "sbin", "lib", "lib32", "lib64"):
        path = f"/{name}"
        if os.path.islink(path):
            yield Link(path=path.encode(), target=os.readlink(path).encode())
        elif os.path.isdir(path):
            yield Bind(path=path.encode())
    yield Scratch(path=b"/tmp", size_bytes=16 * MEBIBYTE, mode=0o1777)


def interpreter() -> Iterator[Part]:
    """What this interpreter imports from, wherever it lies."""
    places = {os.path.realpath(path) for path in (*sys.path, sys.prefix, sys.base_prefix) if path}
    for path in sorted(places):
        if os.path.isdir(path) and not f"{path}/".startswith(("/usr/", "/etc/", "/opt/")):
            yield Bind(path=path.encode(), mapped=True)


def in_order(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Parents first."""
    return tuple(sorted(parts, key=lambda part: part.path))


@dataclass
class Caller:
    """Somebody who starts runs, with a spawner of its own and a workspace.

    ``kept``: what its interpreter needs to be seen of.
    """

    name: str
    spawner: SpawnerStandIn
    directory: Path
    kept: tuple[Part, ...]
    python: str

    @classmethod
    @contextlib.contextmanager
    def open(
        cls, name: str, installation: Installation | None = None, **spawner: Any
    ) -> Iterator[Self]:
        """The caller of one of `CALLERS`; ``spawner`` are arguments of its `SpawnerStandIn`.

        ``installation``: for ``user``, one that is there already.
        """
        with contextlib.ExitStack() as stack:
            directory = stack.enter_context(_workspace(name))
            if name == "user":
                installation = installation or stack.enter_context(installed())
                place = os.fsencode(installation.directory)
                kept: tuple[Part, ...] = (Bind(path=place),)
                python = installation.python
                spawner = {"python": python, "popen": {**as_nobody(), "cwd": "/"}, **spawner}
            else:
                kept, python = tuple(interpreter()), sys.executable
            started = stack.enter_context(SpawnerStandIn(**spawner))
            yield cls(name, started, directory, kept, python)

    @property
    def uid(self) -> int:
        """Who the files of the workspace belong to."""
        return ORDINARY_UID if self.name == "user" else os.getuid()

    @property
    def run_uid(self) -> int:
        """Who the run's processes belong to."""
        return RUN_UID if self.uid == 0 else self.uid

    def make(self, name: str, content: str | None = None) -> Path:
        """A directory, or a file, in the workspace."""
        path = self.directory / name
        if content is None:
            path.mkdir(parents=True)
        else:
            path.write_text(content)
        for made in (path, *path.parents):
            if made.is_relative_to(self.directory):
                os.chown(made, self.uid, self.uid)
        return path

    def view(self, *more: Part) -> tuple[Part, ...]:
        """What a program needs, with the workspace to write to."""
        place = Bind(path=os.fsencode(self.directory), writable=True, mapped=True)
        return in_order([*system(), *self.kept, place, *more])

    def launch(
        self,
        *argv: str,
        sandbox: Sandbox = Sandbox.STRICT,
        view: Sequence[Part] | None = None,
        network: Network = Network.NONE,
        cwd: str | None = None,
        **more: Any,
    ) -> LaunchedRun:
        """Ask for a run in the workspace."""
        return self.spawner.launch(
            *argv,
            sandbox=sandbox,
            view=self.view() if view is None else view,
            network=network,
            cwd=str(self.directory) if cwd is None else cwd,
            host_uid=RUN_UID if self.uid == 0 else None,
            **more,
        )

    def output(self, *argv: str, **launch: Any) -> str:
        """What a program says that must succeed."""
        run = self.launch(*argv, **launch)
        end = run.exited()
        said = run.output_bytes().decode()
        assert (end.code, end.signal) == (0, None), (end, said)
        return said

    def shell(self, script: str, **launch: Any) -> str:
        """The same of a script, whose failing commands do not end it."""
        return self.output("sh", "-c", f"exec 2>&1; {script}; true", **launch)


@contextlib.contextmanager
def _workspace(name: str) -> Iterator[Path]:
    """A directory of the caller's that its runs can be shown."""
    if name == "user":
        with ordinary_directory() as path:
            yield path
        return
    # Where an ordinary user of the same machine could go, too: pytest's own are closed.
    with tempfile.TemporaryDirectory(prefix="agentctl-test-", dir="/tmp") as made:
        yield Path(made)


def mounts_of_runs(*directories: Path) -> list[str]:
    """The mounts that a run must not leave on the host, or be seen to make.

    Those of a private root, which no run leaves, whosever it is; and what is in *directories*.
    """
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        own = any(str(directory) in before for directory in directories)
        if own or after.split()[1] == "agentctl":
            found.append(line)
    return found


@contextlib.contextmanager
def without_namespaces(name: str) -> Iterator[Caller]:
    """A caller in a place like a container's, where no namespace and no mount is to be had."""
    start = [sys.executable if name != "user" else "/usr/bin/python3", "-I", "-S", "-c"]
    program = assemble(_CONTAINER).hex()
    with Caller.open(name, wrapper=(*start, _UNDER_FILTER, program)) as caller:
        yield caller


_NEW: Final = 0x7E02_0000 | 0x0200_0000
_CONTAINER: Final = [
    Rule("clone3", 38, "as docker's profile"),
    Rule("clone", 1, "as docker's profile", only_if=(Condition(0, (0,), _NEW, negated=True),)),
    *(
        Rule(call, 1, "as docker's profile")
        for call in (
            *("unshare", "setns", "mount", "umount2", "pivot_root", "open_tree", "move_mount"),
            *("fsopen", "fsmount", "fsconfig", "mount_setattr"),
        )
    ),
]
_UNDER_FILTER: Final = """
import ctypes, os, sys
program = bytes.fromhex(sys.argv[1])
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("text", ctypes.c_void_p)]
text = ctypes.create_string_buffer(program, len(program))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(program) // 8, ctypes.addressof(text)))) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""
FALLBACK: Final[dict[str, Any]] = {"containment": Containment.SUBREAPER}
