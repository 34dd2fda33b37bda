"""agentctl for a user who can read nothing of ours.

Checkout, environment and interpreter of whoever runs the tests often lie where only
that user may look.  So all that is needed is copied to a place that belongs to the
ordinary user, and run by an interpreter of the same version that everybody has.
"""

import contextlib
import functools
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import agentctl_child
import agentctl_protocol
import agentctl_supervisor
from agentctl_testkit import (
    AGENTS,
    REPOSITORY,
    AgentctlHome,
    as_nobody,
    command_of,
    ordinary_directory,
)
from agentctl_testkit.log_check import faults, logs_below

_OURS: Final = (agentctl_protocol, agentctl_child, agentctl_supervisor)
_THEIRS: Final = ("trio", "msgspec", "psutil")
_VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_FOLDERS: Final = (Path(sys.executable).parent, "/usr/local/bin", "/usr/bin", "/bin")


@functools.cache
def interpreter() -> str | None:
    """An interpreter of our own version that the ordinary user can run; needs root."""
    for folder in _FOLDERS:
        path = f"{folder}/python{_VERSION}"
        # Isolated and without site: what it finds elsewhere says nothing about itself.
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run(
                [path, "-I", "-S", "-c", "import ctypes, venv"],
                check=True,
                capture_output=True,
                cwd="/",
                **as_nobody(),
            )
            return path
    return None


class OrdinaryHome(AgentctlHome):
    """A state directory of the ordinary user, and the command line as that user has it."""

    def __init__(self, installation: "Installation", root: Path) -> None:
        super().__init__(root, {"HOME": str(root.parent)})
        self._installation = installation

    def argv(self, *arguments: str) -> tuple[str, ...]:
        """The command line, with our interpreter and agents replaced by the user's copies."""
        copies = str(self._installation.agents)
        return (
            self._installation.agentctl,
            *(self._installation.translated(word, copies) for word in arguments),
        )

    def start(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        as_ordinary_user: bool = True,
        **popen: Any,
    ) -> "subprocess.Popen[bytes]":
        """As in `AgentctlHome`, as the ordinary user."""
        return super().start(
            *arguments,
            environment=environment,
            as_ordinary_user=as_ordinary_user,
            **{"cwd": "/", **popen},
        )


class Installation:
    """agentctl and the hostile agents in *directory*, for everybody to read."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.python = str(directory / "venv/bin/python")
        self.agentctl = command_of(self.python)
        self.agents = directory / "checkout/tests/agents"
        found = interpreter()
        assert found is not None
        lay_out(directory / "venv", found)
        for folder in ("tests/agents", "examples"):
            shutil.copytree(REPOSITORY / folder, directory / "checkout" / folder)
        # Nobody else can write there, so it is compiled for all.
        subprocess.run([self.python, "-m", "compileall", "-q", directory], check=True)

    def translated(self, word: str, copies: str) -> str:
        """*word* of a command line for the ordinary user."""
        return self.python if word == sys.executable else word.replace(str(AGENTS), copies)


def lay_out(venv: Path, python: str) -> None:
    """Make a virtual environment of *python* with agentctl in it, as pip would, but of copies."""
    subprocess.run([python, "-m", "venv", "--without-pip", venv], check=True)
    site = venv / f"lib/python{_VERSION}/site-packages"
    copy_needed(site)
    for package in _OURS:
        (folder,) = package.__path__
        shutil.copytree(
            folder, site / package.__name__, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(REPOSITORY / "bin/agentctl", venv / "bin/agentctl")


def copy_needed(site: Path) -> None:
    """Copy what agentctl needs into the directory of packages *site*."""
    for name in _required(_THEIRS):
        _copy_distribution(name, site)


@contextlib.contextmanager
def installed() -> Iterator[Installation]:
    """An installation, until the end.

    Raises:
        AssertionError: a log that was made below it breaks a promise.
    """
    with ordinary_directory() as directory:
        directory.chmod(0o755)
        yield Installation(directory)
        broken = {str(run): told for run in logs_below(directory) if (told := faults(run))}
        assert not broken, broken


def _required(names: tuple[str, ...]) -> list[str]:
    """The distributions *names*, and what they need here."""
    found: list[str] = []
    left = list(names)
    while left:
        name = left.pop()
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            needed = importlib.metadata.requires(name) or []
            if name not in found:
                found.append(name)
                left += [
                    re.split(r"[^A-Za-z0-9._-]", need)[0] for need in needed if "extra" not in need
                ]
    return found


def _copy_distribution(name: str, site: Path) -> None:
    for file in importlib.metadata.files(name) or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            to = site / file
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(os.fspath(file.locate()), to)
