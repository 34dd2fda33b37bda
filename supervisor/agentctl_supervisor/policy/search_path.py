"""Find the directories that this process imports from.

A process that can write there controls what agentctl does next.  The command ``agentctl`` is
isolated: its ``sys.path`` has only its own packages (docs/adr/0016).  In a program that embeds
agentctl, and under ``python -m``, the present ``sys.path`` counts.  What the environment would add
to it in the next process is not examined.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, Final

from agentctl_supervisor.processes.isolated_python import PACKAGES

_NAMES: Final = frozenset(PACKAGES) | {
    *("sitecustomize", "usercustomize", "org", "typing_extensions"),
}
"""The last four are optional imports: of ``site``, of ``copy`` until Python 3.13, of ``attr``."""

_APART: Final = (
    "install agentctl in an environment of its own: pipx install, uv tool install --link-mode copy"
)
_SAFE_PATH: Final = "python -P does not import from there; or name a directory of the run's own"


def entries() -> Iterator[tuple[str, str]]:
    """Yield the directories of ``sys.path``, each with a hint; they need not exist."""
    path: list[Any] = sys.path
    for number, entry in enumerate(path):
        # An entry that is no directory is a marker for an importer, as of a development install.
        if not isinstance(entry, str) or not (os.path.isabs(entry) or os.path.isdir(entry or ".")):
            continue
        with contextlib.suppress(FileNotFoundError):
            is_the_programs = number == 0 and not sys.flags.safe_path
            yield os.path.abspath(entry), _SAFE_PATH if is_the_programs else _APART


def is_importable(name: str) -> bool:
    """Return whether agentctl may import a module from a file or directory called *name*."""
    module = name.partition(".")[0]
    return (
        name == "__pycache__"
        or module in sys.stdlib_module_names
        or module in _NAMES
        # A copy, because other threads may import at the same time.
        or any(str(known).partition(".")[0] == module for known in list(sys.modules))
    )


def started() -> Iterator[str]:
    """Yield the files that this process was started from, with their links not resolved."""
    # An embedded interpreter may have no arguments.
    arguments: list[str] = getattr(sys, "argv", [])
    for path in (*_interpreters(), *arguments[:1]):
        with contextlib.suppress(FileNotFoundError):
            if path and os.path.isfile(path):
                yield os.path.abspath(path)


def configured() -> Iterator[str]:
    """Yield the ``pyvenv.cfg`` paths that an interpreter reads first (`venv`, Python's `getpath`).

    The files need not exist.
    """
    for path in _interpreters():
        with contextlib.suppress(FileNotFoundError):
            if path:
                directory = os.path.dirname(os.path.abspath(path))
                for at in (directory, os.path.dirname(directory)):
                    yield os.path.join(at, "pyvenv.cfg")


def _interpreters() -> tuple[str, str]:
    """Return this interpreter and the one that its virtual environment is of; "" if unknown."""
    return sys.executable, getattr(sys, "_base_executable", "")
