"""Where this process imports from: whoever can write there decides what agentctl does next.

The command ``agentctl`` is isolated, and has nothing on its path but its own packages
(docs/adr/0016).  In a program that embeds us, and under ``python -m``, ``sys.path`` is judged as
it is; what the environment would add to it for the next process is not looked for.
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
"""The last four are tried: by ``site``, by ``copy`` until Python 3.13, by ``attr``."""

_APART: Final = (
    "install agentctl in an environment of its own: pipx install, uv tool install --link-mode copy"
)
_SAFE_PATH: Final = "python -P does not import from there; or name a directory of the run's own"


def entries() -> Iterator[tuple[str, str]]:
    """Return the directories of ``sys.path``, there or not, with what to do about each."""
    path: list[Any] = sys.path
    for number, entry in enumerate(path):
        # A name without a directory is a mark for an importer, as of a development install.
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
        # Other threads import meanwhile.
        or any(str(known).partition(".")[0] == module for known in list(sys.modules))
    )


def started() -> Iterator[str]:
    """Return the files that this process was started by, as they were named."""
    # An interpreter that is embedded may have no arguments.
    arguments: list[str] = getattr(sys, "argv", [])
    for path in (*_interpreters(), *arguments[:1]):
        with contextlib.suppress(FileNotFoundError):
            if path and os.path.isfile(path):
                yield os.path.abspath(path)


def configured() -> Iterator[str]:
    """Return what an interpreter reads first, there or not: `venv` and `getpath` of Python's."""
    for path in _interpreters():
        with contextlib.suppress(FileNotFoundError):
            if path:
                directory = os.path.dirname(os.path.abspath(path))
                for at in (directory, os.path.dirname(directory)):
                    yield os.path.join(at, "pyvenv.cfg")


def _interpreters() -> tuple[str, str]:
    """As it was called, and that of which it is a virtual environment; "" where that is unknown."""
    return sys.executable, getattr(sys, "_base_executable", "")
